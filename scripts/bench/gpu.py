"""The bench on a GPU, within minutes: correctness, sizes, decoding, lengths up to 4096."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt import build
from nmt.checks.example import build_perturbed, sentences
from nmt.config.catalog import folders_in, options_of
from nmt.config.hydra_conf import parse
from nmt.config.settings import Settings
from nmt.errors import where_raised
from nmt.model.transformer import Transformer
from nmt.system.device import set_up
from nmt.text.vocab import PAD
from scripts.bench import decoding
from scripts.bench.rounds import ratio
from scripts.bench.session import Session
from scripts.bench.table import LEFT_OUT, BenchPart, Columns, figure_of, gigabytes, rates, rows_of
from scripts.bench.training import UPDATE, make_corpus, make_trainer, run

MINUTES = 8.0
VOCAB = 32_000
LENGTHS = (25, 64, 128, 256, 512, 1024, 2048, 4096)
BATCH = 16_384  # tokens, without eos, of a batch whose sentences have one length
BOTH = ("bfloat16", "bfloat16 relative")
FIRST = "over the first"
COLUMNS: Columns = {
    "target tokens/s": rates,
    "/first": figure_of(FIRST, "{:.2f}"),
    "s/update": figure_of(UPDATE, "{:.4f}"),
    "GB": gigabytes,
}
SOURCES, TARGETS = (9, 12, 5), (14, 10, 14)  # tokens of the sentences of a check
# float32 has 24 bits; sums of other orders through some layers were up to 40 units in the last
# place apart between two CPUs, and a GPU's kernels sum in yet other ones.
NEAR = 2**-16


class GpuBenchmark(NamedTuple):
    """Trainings that take turns, and are compared with the first of them."""

    title: str
    model: str
    tokens: int  # of a batch
    choices: Sequence[str]  # PRECISION, or PRECISION ENCODING
    kind: dict[str, Any]  # of the corpus


def check(session: Session) -> BenchPart:
    """Compare loss and gradients of each encoding with the CPU's; `nmt-encodings` checks caches."""
    device, quick = torch.device(session.device), session.options.quick
    set_up(device, threads=session.options.threads)  # before the first product, as nmt-train does
    every = options_of("encoding", folders_in(parse(session.options.overrides)))
    names = session.options.encodings or every[:: 12 if quick else 1]
    shares, failed, left_out = dict[str, float](), dict[str, str](), list[str]()
    for name in names:
        settings = session.settings_or_reason("model=tiny", f"encoding={name}")
        if session.is_over:
            left_out.append(name)
        elif isinstance(settings, str):
            failed[name] = settings
        else:
            try:
                shares[name] = compare_with_cpu(build.shrink(settings), device)
            except Exception as error:  # any mistake of an encoding or of a device's kernel
                failed[name] = where_raised(error)
    failed |= {name: f"{share:.1f} bounds" for name, share in shares.items() if share > 1}
    notes = [f"{name}: {why}" for name, why in failed.items()]
    notes += [f"{LEFT_OUT}: {', '.join(left_out)}"] * bool(left_out)
    worst = max(shares, key=lambda name: shares[name], default="-")
    row = ["loss and gradients", str(len(shares)), worst, str(len(failed)), ""]
    finite = {name: share for name, share in shares.items() if math.isfinite(share)}  # for JSON
    facts = {"shares of the bound": finite, "failed": failed, "left_out": left_out}
    title = f"correctness on {session.device}, compared with the CPU"
    columns = ("encodings", "worst", "beyond the bound")
    return BenchPart("correctness", title, columns, [row], notes, facts)


def compare_with_cpu(settings: Settings, device: torch.device) -> float:
    """The largest difference of a loss or gradient in float32, in units of its bound."""
    model = build_perturbed(settings)
    on_device = gradients_of(copy.deepcopy(model).to(device))
    shares = []
    for one, other in zip(gradients_of(model), on_device, strict=True):
        difference, largest = (one - other.cpu()).abs().max(), one.abs().max()
        shares.append(difference / (NEAR * largest.clamp(min=NEAR)))
    return float(torch.stack(shares).nan_to_num(nan=math.inf).max())


def gradients_of(model: Transformer) -> list[Tensor]:
    """The loss of a padded batch and its gradients, in the order of the parameters."""
    text = sentences(model, SOURCES, TARGETS)
    for module in model.modules():
        if isinstance(module, nn.RNNBase):  # of one layer: training mode changes nothing
            module.train()  # cuDNN has no gradient in eval mode
    logits = model(text.source, text.target[:, :-1], text.columns).flatten(0, 1)
    loss = F.cross_entropy(logits, text.target[:, 1:].flatten(), ignore_index=PAD)
    loss.backward()
    zero = torch.zeros(1)
    return [loss.detach(), *(zero if p.grad is None else p.grad for p in model.parameters())]


def decode(session: Session) -> BenchPart:
    sized = () if session.options.quick else ("model=base",)
    return decoding.measure(session, ("float32", "bfloat16"), *sized)


def train_sizes(session: Session) -> BenchPart:
    quick, benchmarks = session.options.quick, []
    tokens = 400 if quick else 25_000
    for size in ("base", "big"):
        title = f"training, {'tiny' if quick else size}, {tokens} tokens"
        benchmarks.append(GpuBenchmark(title, size, tokens, (*BOTH, "float32"), {}))
    return measure(session, "sizes", benchmarks)


def train_lengths(session: Session) -> BenchPart:
    """Training on sentences of one length, as many as make a batch of equal size."""
    quick, benchmarks = session.options.quick, []
    for length in LENGTHS[:2] if quick else LENGTHS:
        title = f"length {length}, {'tiny' if quick else 'base'}"
        rows = 2 if quick else max(1, BATCH // length)
        kind = {"mean": length, "equal": True, "pairs": 64 if quick else 4096}
        benchmarks.append(GpuBenchmark(title, "base", rows * (length + 1), BOTH, kind))
    return measure(session, "lengths", benchmarks)


# In the order in which they run: what matters less, or is measured in many steps, comes last.
PARTS: dict[str, Callable[[Session], BenchPart]] = {
    "correctness": check,
    "sizes": train_sizes,
    "decoding": decode,
    "lengths": train_lengths,
}


def measure_parts(session: Session, chosen: Sequence[str]) -> Iterator[BenchPart]:
    """Run the chosen parts, each with an equal share of the time that is left.

    So a part that needs less leaves more to those after it, and none takes another's time. Tables
    and JSON name what was left out for want of time.
    """
    names = [name for name in PARTS if name in chosen]
    ends = monotonic() + 60 * MINUTES
    for number, name in enumerate(names):
        began = monotonic()
        share = session._replace(ends=began + (ends - began) / (len(names) - number))
        if share.is_over:
            yield BenchPart(name, f"{name}: {LEFT_OUT}", (), [], [], {"left_out": [name]})
        else:
            yield PARTS[name](share)


def measure(session: Session, name: str, benchmarks: Iterable[GpuBenchmark]) -> BenchPart:
    rows, facts, left_out = [], [], []
    for planned in benchmarks:
        if session.is_over:
            left_out.append(planned.title)
            continue
        more, fact = measure_one(session, planned)
        rows += more
        facts.append(fact)
    title = f"training on {session.device}: {name}"
    notes = [f"{title}: {LEFT_OUT}" for title in left_out]
    facts_and_gaps = {"benchmarks": facts, "left_out": left_out}
    return BenchPart(name, title, list(COLUMNS), rows, notes, facts_and_gaps)


def measure_one(session: Session, planned: GpuBenchmark) -> tuple[list[list[str]], dict[str, Any]]:
    quick = session.options.quick
    attempts: dict[str, Settings | str] = {}
    for choice in planned.choices:
        precision, *encodings = choice.split()
        attempts[choice] = session.settings_or_reason(
            *(() if quick else (f"model={planned.model}",)),
            *(f"trainer.batch_tokens={planned.tokens}", f"trainer.precision={precision}"),
            *(f"encoding={name}" for name in encodings),
        )
    able = [settings for settings in attempts.values() if isinstance(settings, Settings)]
    if not able:
        why = "; ".join(dict.fromkeys(map(str, attempts.values())))
        row = [planned.title, *("-" for _ in COLUMNS), why]
        return [row], {"title": planned.title, "failed": why}
    vocab = 200 if quick else VOCAB
    data = make_corpus(session, able[0], vocab=vocab, updates=2, **planned.kind)
    trainers = [make_trainer(session, choice, s, data) for choice, s in attempts.items()]
    run(session, data, trainers)
    for c in trainers:
        c.figures[FIRST] = ratio(c, trainers[0])
    rows = [[f"{planned.title}: {name}", *cells] for name, *cells in rows_of(COLUMNS, trainers)]
    return rows, {"title": planned.title, "entries": [c.to_json() for c in trainers]}
