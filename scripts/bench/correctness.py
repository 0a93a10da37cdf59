"""Is what a device computes right? Gradients beside those of the CPU, decoding beside one pass."""

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt import build
from nmt.checks import parity
from nmt.checks.example import Sentences, build_perturbed, sentences
from nmt.config.settings import Settings
from nmt.errors import UserError, where_raised
from nmt.model.transformer import Transformer
from nmt.system.device import set_up
from nmt.text.vocab import PAD
from scripts.bench.session import Session
from scripts.bench.table import LEFT_OUT, BenchPart

TOKENS = 24  # of a target that is decoded
SOURCES, TARGETS = (9, 12, 5), (14, 10, 14)  # tokens of the sentences beside the CPU
# float32 has 24 bits; sums of other orders through some layers were up to 40 units in the last
# place apart between two CPUs, and a GPU's kernels sum in yet other ones.
NEAR = 2**-16
COLUMNS = ("cases", "worst", "beyond its bound")
Case = TypeVar("Case")


class Checked(NamedTuple):
    """What a check found, over all encodings, or shapes, that were tried."""

    shares: dict[str, float]  # case -> difference in units of the bound; NaN: not finite
    errors: dict[str, str]  # case -> what was raised
    left_out: Sequence[str] = ()  # cases for which there was no time

    def row(self, name: str) -> list[str]:
        worst = max(self.shares, key=lambda case: or_infinity(self.shares[case]), default=None)
        shown = "-" if worst is None else f"{worst}: {self.shares[worst]:.0%} of its bound"
        wrong = {case: f"{share:.1f}" for case, share in self.shares.items() if not share <= 1}
        failed = "; ".join(f"{case}: {how}" for case, how in (wrong | self.errors).items())
        return [name, str(len(self.shares) + len(self.errors)), shown, failed or "none", ""]

    def to_json(self) -> dict[str, Any]:
        """All cases; JSON knows neither NaN nor infinity."""
        shares = {case: s if math.isfinite(s) else None for case, s in self.shares.items()}
        return {"shares": shares, "errors": self.errors, "left_out": self.left_out}


def or_infinity(share: float) -> float:
    return share if math.isfinite(share) else math.inf


def parts(session: Session) -> list[BenchPart]:
    """Check all encodings on the session's device; each check has a share of the session's time."""
    device, quick = torch.device(session.device), session.options.quick
    set_up(device, threads=session.options.threads)  # before the first product, as nmt-train does
    names = session.encodings()
    if quick and session.options.encodings is None:
        names = names[::12]
    attempts = {name: session.attempt("model=tiny", f"encoding={name}") for name in names}
    notes = [f"{name}: {why}" for name, why in attempts.items() if isinstance(why, str)]
    settings = {n: build.shrink(s) for n, s in attempts.items() if isinstance(s, Settings)}
    shares = session.shares(3)
    checks = {
        "decoding with a cache, beside a full pass": check_all(
            settings, lambda s: compare_cached(s, device), next(shares)
        ),
        "loss and gradients, beside those of the CPU": check_all(
            settings, lambda s: compare_with_cpu(s, device), next(shares)
        ),
    }
    if device.type == "cuda":
        waits = "waits for the GPU in forward and backward"
        counted = check_all(settings, lambda s: count_waits(s, device), next(shares))
        listed = ", ".join(f"{name} {count:g}" for name, count in counted.shares.items() if count)
        notes.append(f"{waits}: {listed or 'none'}")
        notes += [f"{waits}: {name}: {why}" for name, why in counted.errors.items()]
        notes += [f"{waits}: {LEFT_OUT}: {', '.join(counted.left_out)}"] * bool(counted.left_out)
    else:
        notes.append("waits for the device: only a GPU has them")
    for name, check in checks.items():
        notes += [f"{name}: {LEFT_OUT}: {', '.join(check.left_out)}"] * bool(check.left_out)
    rows = [check.row(name) for name, check in checks.items()]
    facts: dict[str, Any] = {name: check.to_json() for name, check in checks.items()}
    title = f"correctness on {device}"
    return [BenchPart("correctness", title, COLUMNS, rows, notes, facts)]


def check_all(
    cases: Mapping[str, Case], measure: Callable[[Case], float], session: Session
) -> Checked:
    """Try each case while there is time; what one raises is its result, the others are tried."""
    shares, errors, left_out = dict[str, float](), dict[str, str](), list[str]()
    for name, case in cases.items():
        if session.is_over:
            left_out.append(name)
            continue
        try:
            shares[name] = measure(case)
        except Exception as error:  # any mistake of an encoding or of a device's kernel
            errors[name] = str(error) if isinstance(error, UserError) else where_raised(error)
    return Checked(shares, errors, left_out)


def compare_cached(settings: Settings, device: torch.device) -> float:
    """Cached decoding in float32, under all conditions of nmt-encodings --check."""
    deviations = list(parity.measure(build_perturbed(settings).to(device), TOKENS, ["float32"]))
    if errors := [deviation.error for deviation in deviations if deviation.error]:
        raise RuntimeError(errors[0])
    return max((d.difference / d.bound for d in deviations), key=or_infinity)


def compare_with_cpu(settings: Settings, device: torch.device) -> float:
    """The loss and all gradients of one model and text, there and here, in float32."""
    here = build_perturbed(settings)
    there = copy.deepcopy(here).to(device)
    return compare_gradients(gradients_of(here), gradients_of(there))


def compare_gradients(here: Sequence[Tensor], there: Sequence[Tensor]) -> float:
    """The largest difference of two tensors, in units of its bound."""
    shares = []
    for one, other in zip(here, there, strict=True):
        difference, largest = (one - other.cpu()).abs().max(), one.abs().max()
        shares.append(float(difference / (NEAR * largest.clamp(min=NEAR))))
    return max(shares, key=or_infinity)


def gradients_of(model: Transformer) -> list[Tensor]:
    """The loss of a padded batch and its gradients, in the order of the parameters."""
    loss = loss_of(model, sentences(model, SOURCES, TARGETS))
    loss.backward()
    zero = torch.zeros(1)
    return [loss.detach(), *(zero if p.grad is None else p.grad for p in model.parameters())]


def loss_of(model: Transformer, text: Sentences) -> Tensor:
    for module in model.modules():
        if isinstance(module, nn.RNNBase):  # of one layer: training mode changes nothing
            module.train()  # cuDNN has no gradient in eval mode
    logits = model(text.source, text.target[:, :-1], text.columns)
    return F.cross_entropy(logits.flatten(0, 1), text.target[:, 1:].flatten(), ignore_index=PAD)


def count_waits(settings: Settings, device: torch.device) -> int:
    """How often a forward and backward pass wait for the GPU; torch counts."""
    model = build_perturbed(settings).to(device)
    text = sentences(model, SOURCES, TARGETS)
    loss_of(model, text).backward()  # kernels are loaded at first use
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            loss_of(model, text).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in seen)
