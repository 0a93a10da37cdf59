"""Is what a device computes right? Gradients beside those of the CPU, decoding beside one pass."""

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt import build
from nmt.checks import parity
from nmt.checks.example import Sentences, perturbed, sentences
from nmt.config.catalog import folders_in, options_of
from nmt.config.hydra_conf import parse
from nmt.config.settings import Settings
from nmt.errors import UserError, where_raised
from nmt.model.transformer import Transformer
from nmt.system.device import set_up
from nmt.text.vocab import PAD
from scripts.bench.resuming import resumed
from scripts.bench.session import Session
from scripts.bench.table import LEFT_OUT, BenchPart

TOKENS = 24  # of a target that is decoded
SOURCES, TARGETS = (9, 12, 5), (14, 10, 14)  # tokens of the sentences beside the CPU
# float32 has 24 bits; sums of other orders through some layers were up to 40 units in the last
# place apart between two CPUs, and a GPU's kernels sum in yet other ones.
NEAR = 2**-16
RESUMED = 3  # encodings; seconds each
COLUMNS = ("cases", "worst", "beyond its bound")


Case = TypeVar("Case")


class Checked(NamedTuple):
    """What a check found, over all encodings, or shapes, that were tried."""

    name: str
    shares: dict[str, float]  # case -> difference in units of the bound; NaN: not finite
    errors: dict[str, str]  # case -> what was raised
    left_out: Sequence[str] = ()  # cases for which there was no time

    @property
    def beyond(self) -> dict[str, str]:
        """Cases that failed, and how."""
        wrong = {name: f"{share:.1f}" for name, share in self.shares.items() if not share <= 1}
        return {**wrong, **self.errors}

    def row(self) -> list[str]:
        """The row below COLUMNS."""
        worst = max(self.shares, key=lambda name: _worse(self.shares[name]), default=None)
        shown = "-" if worst is None else f"{worst}: {self.shares[worst]:.0%} of its bound"
        failed = "; ".join(f"{name}: {how}" for name, how in self.beyond.items()) or "none"
        return [self.name, str(len(self.shares) + len(self.errors)), shown, failed, ""]

    def to_json(self) -> dict[str, Any]:
        """All cases; JSON knows neither NaN nor infinity."""
        shares = {name: s if math.isfinite(s) else None for name, s in self.shares.items()}
        return {"shares": shares, "errors": self.errors, "left_out": self.left_out}


def parts(session: Session) -> list[BenchPart]:
    """Check all encodings on the session's device; each check has a share of the session's time."""
    device = torch.device(session.device)
    set_up(device, threads=session.threads)  # before the first product, as nmt-train does
    names = session.encodings or options_of("encoding", folders_in(parse(session.overrides)))
    if session.quick and session.encodings is None:
        names = names[::12]
    settings, refused = dict[str, Settings](), list[str]()
    for name in names:
        answer = session.attempt("model=tiny", f"encoding={name}")
        if isinstance(answer, str):
            refused.append(f"{name}: {answer}")
        else:
            settings[name] = build.shrunken(answer)
    shares = session.shares(4)
    few = _few(settings, 1 if session.quick else RESUMED)
    cached = "decoding with a cache, beside a full pass"
    gradients = "loss and gradients, beside those of the CPU"
    never_stopped = "resumed, beside a run that never stopped"
    checks = [
        _checked(cached, settings, _cached(device), next(shares)),
        _checked(gradients, settings, _beside_cpu(device), next(shares)),
        Checked("log_softmax in place, beside a new tensor", {"all": _in_place(device)}, {}),
        _checked(never_stopped, few, resumed(session), next(shares)),
    ]
    notes = _waits(settings, device, next(shares))
    notes += [f"{c.name}: {LEFT_OUT}: {', '.join(c.left_out)}" for c in checks if c.left_out]
    return [
        BenchPart(
            "correctness",
            f"correctness on {device}",
            COLUMNS,
            [check.row() for check in checks],
            [*refused, *notes],
            {c.name: c.to_json() for c in checks} | {"notes": notes},
        )
    ]


def _checked(
    name: str, cases: dict[str, Case], share: Callable[[Case], float], session: Session
) -> Checked:
    """Try each case while there is time; what one raises is its result, the others are tried."""
    shares, errors, left_out = dict[str, float](), dict[str, str](), list[str]()
    for case, chosen in cases.items():
        if session.is_over:
            left_out.append(case)
            continue
        try:
            shares[case] = share(chosen)
        except Exception as error:  # any mistake of an encoding or of a device's kernel
            errors[case] = str(error) if isinstance(error, UserError) else where_raised(error)
    return Checked(name, shares, errors, left_out)


def _few(settings: dict[str, Settings], few: int) -> dict[str, Settings]:
    """The first encodings that read no columns, which made-up text does not have."""
    plain = {name: chosen for name, chosen in settings.items() if not perturbed(chosen).columns}
    return dict(list(plain.items())[:few])


def _cached(device: torch.device) -> Callable[[Settings], float]:
    """Cached decoding in float32, under all conditions of nmt-encodings --check."""

    def share(settings: Settings) -> float:
        model = perturbed(settings).to(device)
        found = list(parity.measure(model, TOKENS, ["float32"]))
        if errors := [deviation.error for deviation in found if deviation.error]:
            raise RuntimeError(errors[0])
        return max((d.difference / d.bound for d in found), key=_worse)

    return share


def _beside_cpu(device: torch.device) -> Callable[[Settings], float]:
    """The loss and all gradients of one model and text, there and here, in float32."""

    def share(settings: Settings) -> float:
        here = perturbed(settings)
        there = copy.deepcopy(here).to(device)
        shares = []
        for one, other in zip(*(_gradients(model) for model in (here, there)), strict=True):
            difference, largest = (one - other.cpu()).abs().max(), one.abs().max()
            shares.append(float(difference / (NEAR * largest.clamp(min=NEAR))))
        return max(shares, key=_worse)

    return share


def _gradients(model: Transformer) -> list[Tensor]:
    """The loss of a padded batch and its gradients, in the order of the parameters."""
    text = sentences(model, SOURCES, TARGETS)
    loss = _loss(model, text)
    loss.backward()
    zero = torch.zeros(1)
    return [loss.detach(), *(zero if p.grad is None else p.grad for p in model.parameters())]


def _loss(model: Transformer, text: Sentences) -> Tensor:
    for module in model.modules():
        if isinstance(module, nn.RNNBase):  # of one layer: training mode changes nothing
            module.train()  # cuDNN has no gradient in eval mode
    logits = model(text.source, text.target[:, :-1], text.columns)
    return F.cross_entropy(logits.flatten(0, 1), text.target[:, 1:].flatten(), ignore_index=PAD)


def _in_place(device: torch.device) -> float:
    """What the loss over the vocabulary relies on: 0 if the bits are the same, else NaN."""
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(257, 32_003, generator=draw).to(device)
    new = logits.log_softmax(1)
    torch.log_softmax(logits, 1, out=logits)
    return 0.0 if torch.equal(logits, new) else math.nan


def _waits(settings: dict[str, Settings], device: torch.device, session: Session) -> list[str]:
    """Encodings whose forward and backward pass wait for the GPU, and how often; torch counts."""
    if device.type != "cuda":
        return ["waits for the device: only a GPU has them"]
    title = "waits for the GPU in forward and backward"
    found = _checked(title, settings, lambda chosen: _count_waits(chosen, device), session)
    listed = ", ".join(f"{name} {count:g}" for name, count in found.shares.items() if count)
    notes = [f"{title}: {listed or 'none'}"]
    notes += [f"{title}: {name}: {why}" for name, why in found.errors.items()]
    return [*notes, *[f"{title}: {LEFT_OUT}: {', '.join(found.left_out)}"] * bool(found.left_out)]


def _count_waits(settings: Settings, device: torch.device) -> int:
    model = perturbed(settings).to(device)
    text = sentences(model, SOURCES, TARGETS)
    _loss(model, text).backward()  # kernels are loaded at first use
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            _loss(model, text).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in seen)


def _worse(share: float) -> float:
    """For comparisons: what is not finite is worst."""
    return share if math.isfinite(share) else math.inf
