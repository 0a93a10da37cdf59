"""Compare another engine's computations with those of our model.

The same proof serves imports and exports, and all engines. Its results are certificate.json, the
sentences on the card, and those in the log.
"""

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from jinja2 import Template
from torch import Tensor, nn

from nmt import build
from nmt.config.settings import Decode
from nmt.decode.translator import Translation, Translator
from nmt.errors import Exit, UserError
from nmt.exchange import samples
from nmt.exchange.interface import EngineScorer, Output
from nmt.exchange.samples import SampleLine
from nmt.modeldir import Trained
from nmt.system.progress import track
from nmt.text.tokenizer import normalise
from nmt.text.vocab import BOS, EOS

LOG_PROBS = 1e-4  # largest difference of two log-probabilities in float32 that passes
TIE = 1e-4  # largest difference of two log-probabilities that rounding may reverse
IMPOSSIBLE = -1e9  # the logit of an id whose probability is 0
BEAM = 4
SEARCHES = {"greedy": 1, f"beam_{BEAM}": BEAM}  # name in the certificate -> beam
WINDOW = 8  # lines that are searched together; progress is shown after each window

log = logging.getLogger(__name__)


class OurOutputs(NamedTuple):
    """Our model's translations of the samples."""

    trained: Trained  # without the ids that the engine does not have
    searched: Trained  # without the ids that it takes out of a search
    samples: list[SampleLine]
    left_out: int
    outputs: dict[str, list[Output]]  # by name of the search

    @property
    def lines(self) -> list[str]:
        """The text of the samples."""
        return [sample.line for sample in self.samples]


def translate_samples(
    trained: Trained, scorer: EngineScorer, lines: Sequence[str] | None
) -> OurOutputs:
    """Choose samples that fit our model and an engine, and translate them."""
    chosen, left_out = samples.choose_samples(trained, scorer, lines)
    longest = max(len(sample.ids) for sample in chosen)
    log.info("comparing on %s lines of up to %s pieces", len(chosen), f"{longest:,}")
    scored, searched = (without_ids(trained, ids) for ids in (scorer.absent, scorer.barred))
    outputs = {name: _search(searched, chosen, name) for name in SEARCHES}
    return OurOutputs(scored, searched, chosen, left_out, outputs)


def certify(ours: OurOutputs, scorer: EngineScorer) -> dict[str, Any]:
    """Compare an engine in float32 with our model; raises UserError (65) if they differ.

    Returns the certificate, as plain values. Outputs whose first different pieces are equally
    likely to our model, or beams that are equally likely as a whole, count as ties.
    """
    engine, form = scorer.library.module, ours.trained.source.segmenter.tokenizer.normalize
    for line, ids, _ in ours.samples:
        if scorer.source_ids(normalise(line, form)) not in (None, [*ids, EOS]):
            raise UserError(f"{line!r}: {engine} makes other pieces of it", Exit.DATA)
    difference = _difference(ours, scorer)
    if not difference["log_probs"] <= LOG_PROBS:
        raise UserError(
            f"log-probabilities in {engine} differ by {difference['log_probs']:.2g}; it computes "
            "something else, so that nothing is written",
            Exit.DATA,
        )
    searches = {}
    for name in SEARCHES:
        searches[name], differing = _compare(ours, scorer, name)
        if differing:
            raise UserError(
                f"{differing[0]!r}: {engine} translates it otherwise by {name}; nothing is written",
                Exit.DATA,
            )
    if not searches[f"beam_{BEAM}"]["compared"]:
        log.warning("beam search was compared on no line: no translation of the samples ends; "
                    "give --samples of the source language")  # fmt: skip
    return {
        "compared_with": str(scorer.library),
        "lines": len(ours.samples),
        "lines_left_out": ours.left_out,
        "lines_normalised": sum(normalise(line, form) != line for line in ours.lines),
        "longest_trained_source": ours.trained.facts["longest_source"],
        "longest_source": max(len(sample.ids) for sample in ours.samples),
        **difference,
        **searches,
        "right_for": {
            "source_pieces": scorer.longest_source and scorer.longest_source - 1,  # null: any
            "target_pieces": scorer.longest_target and scorer.longest_target - 1,
        },
        **({"options": dict(scorer.options)} if scorer.options else {}),
    }


def measure(ours: OurOutputs, scorer: EngineScorer) -> dict[str, Any]:
    """The differences of an engine in another precision; none is an error."""
    return {
        "computed_in": scorer.computed_in,
        "log_probs": _difference(ours, scorer)["log_probs"],
        **{name: _compare(ours, scorer, name)[0] for name in SEARCHES},
    }


def report(certificate: Mapping[str, Any]) -> None:
    """Log a certificate, sentence by sentence."""
    for sentence in sentences(certificate):
        log.info("%s", sentence)


def sentences(certificate: Mapping[str, Any]) -> list[str]:
    """A certificate in words, most important first."""
    text = Path(__file__).with_name("certificate.jinja").read_text(encoding="utf-8")
    return Template(text, trim_blocks=True).render(all=certificate).strip().split("\n")


def without_ids(trained: Trained, ids: Sequence[int], logit: float = IMPOSSIBLE) -> Trained:
    """A model in which some ids have this logit, hence no probability."""
    if not ids:
        return trained
    model = build.shallow(trained.model)
    bias = model.output.bias.detach().clone()
    bias[list(ids)] = logit
    model.output.bias = nn.Parameter(bias)
    return trained._replace(model=model)


def translate_best(
    trained: Trained, lines: Sequence[str], decode: Decode, label: str
) -> list[Translation]:
    """The best translation of each line; an empty one of a line that decode.too_long refuses.

    Nothing is logged about lines that are longer than in training: the samples are meant to be.
    """
    translations = Translator.of(trained, replace(decode, window=WINDOW)).translate(lines)
    of_lines = islice(translations, len(lines))  # not to its end, where it logs what was unusual
    best = [first for first, *_ in track(of_lines, label, [1] * len(lines))]
    translations.close()
    return best


def _search(trained: Trained, chosen: Sequence[SampleLine], name: str) -> list[Output]:
    decode = replace(
        trained.settings.decode.by_beam(),
        beam_size=SEARCHES[name],
        alpha=0.0,
        max_length_ratio=samples.RATIO,
        max_length_offset=samples.ROOM,
        precision="float32",
        split="lines",
        max_source=samples.MOST,
    )  # each sample whole, as the engine gets it
    lines = [sample.line for sample in chosen]
    translations = translate_best(trained, lines, decode, f"{name}, by nmt")
    return [Output(list(translation.ids), translation.finished) for translation in translations]


def _difference(ours: OurOutputs, scorer: EngineScorer) -> dict[str, float]:
    """The largest difference of log-probabilities, in greedy outputs and made-up targets.

    These are entries of a certificate: `log_probs`, and the number of `pieces` that were scored. A
    made-up target for which our model in float32 and float64 differs as much is `ill_conditioned`
    and does not count (4e-3 was seen).
    """
    trained = ours.trained
    largest = torch.zeros(())
    pieces = ill_conditioned = 0
    exact = None
    targets = _targets(ours, scorer)
    pairs = [(source, target) for source, target, _ in targets]
    for (source, target, made_up), theirs in zip(targets, scorer.log_probs(pairs), strict=True):
        rows = log_probs(trained.model, source, target)
        of_target = range(len(target) + 1), [*target, EOS]
        difference = ((rows[:, BOS:] if theirs.ndim > 1 else rows[of_target]) - theirs).abs().max()
        if made_up and scorer.computed_in == "float32" and LOG_PROBS < difference < torch.inf:
            exact = exact or deepcopy(trained.model).double()
            rounding = (log_probs(exact, source, target) - rows)[:, BOS:].abs().max()
            if difference <= 2 * rounding:  # as much in the engine as in ours
                ill_conditioned += 1
                continue
        largest = torch.maximum(largest, difference)  # NaN stays
        pieces += len(target) + 1
    return {"log_probs": float(largest), "pieces": pieces, "ill_conditioned": ill_conditioned}


def _targets(ours: OurOutputs, scorer: EngineScorer) -> list[tuple[list[int], list[int], bool]]:
    """Source, target, and whether it is made up; such a target is as long as the source."""
    trained, draw = ours.trained, Random(2)
    tables = (trained.model.limits(training=False).target, scorer.longest_target)
    most = min((n for n in tables if n is not None), default=None)
    sources = [sample.ids for sample in ours.samples]
    outputs = [output.ids for output in ours.outputs["greedy"]]
    targets = [(source, ids, False) for source, ids in zip(sources, outputs, strict=True)]
    targets += [(ids, samples.random_ids(trained.target, draw, len(ids)), True) for ids in sources]
    return [target for target in targets if most is None or len(target[1]) < most]


def _compare(ours: OurOutputs, scorer: EngineScorer, name: str) -> tuple[dict[str, int], list[str]]:
    """The numbers of outputs that are compared and equal, and the lines of different ones.

    Beams at the length limit, and empty outputs that the engine misses, are left out: there it
    chooses by other rules.
    """
    beam = SEARCHES[name]
    outputs = (scorer.output(sample.ids, sample.limit, beam) for sample in ours.samples)
    theirs = track(outputs, f"{name}, by {scorer.library.module}", [1] * len(ours.samples))
    counts = {"finished": 0, "compared": 0, "equal": 0, "ties": 0}
    differing = []
    for sample, one, other in zip(ours.samples, ours.outputs[name], theirs, strict=True):
        counts["finished"] += one.finished
        ends = (output.finished and len(output.ids) < sample.limit for output in (one, other))
        if beam > 1 and (not all(ends) or (scorer.misses_empty and not one.ids)):
            continue
        counts["compared"] += 1
        if one == other:
            counts["equal"] += 1
        elif is_tie(ours.searched.model, sample.ids, one, other, beam):
            counts["ties"] += 1
        else:
            differing.append(sample.line)
    return counts, differing


def is_tie(model: Any, source: list[int], one: Output, other: Output, beam: int) -> bool:
    """Whether two outputs are equally likely: greedy ones where they part, beams as a whole.

    `source`: its ids, without eos.
    """
    if beam == 1:
        both = zip([*one.ids, EOS], [*other.ids, EOS], strict=False)
        parting = next(((at, a, b) for at, (a, b) in enumerate(both) if a != b), None)
        if parting is None:
            return False
        at, a, b = parting
        row = log_probs(model, source, one.ids[:at])[-1]
        return bool(abs(row[a] - row[b]) <= TIE)
    totals = []
    for ids, finished in (one, other):
        pieces = [*ids, EOS] if finished else ids
        totals.append(log_probs(model, source, ids)[range(len(pieces)), pieces].sum())
    return bool(abs(totals[0] - totals[1]) <= TIE)


@torch.inference_mode()
def log_probs(model: Any, source: list[int], target: list[int]) -> Tensor:
    """Log-probabilities of all ids before each piece of a target and its end [target + 1, vocab].

    Source and target are ids without eos.
    """
    device = next(model.parameters()).device
    source_ids, before = (
        torch.tensor([ids], device=device) for ids in ([*source, EOS], [BOS, *target])
    )
    return model(source_ids, before)[0].float().log_softmax(-1).cpu()
