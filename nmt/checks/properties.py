"""What every encoding must do: a function for each property, tried on a small model.

Each check_... may change the model, which is in eval mode: whoever makes several gives each a copy.
It returns what it measured, or raises CheckError with the figure. The first ones are also tried
before a training: an encoding that forgets `context.allowed` trains with a lower loss than any
other, because its decoder sees the tokens that it is to predict.
"""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks import example
from nmt.checks.example import Sentences, full_pass
from nmt.checks.parity import BOUNDS
from nmt.checks.training_step import CheckError, check_training_step, checking_hooks, require
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context, Positions
from nmt.encodings.positions import Index, Scaled
from nmt.model.transformer import Transformer
from nmt.text.vocab import PAD

# Largest difference, as a share of the largest number, that is a matter of rounding. Products of
# other shapes sum in another order: of all encodings, fire differed most, by 6e-7.
ROUNDING = 1e-5
PADDING = 2  # tokens that are added
SHIFT = 5  # positions
FAR_APART = 257  # bfloat16 has no odd numbers from 257 on
FAR = 2**15 + 4  # float16 and bfloat16 round this and the next eleven numbers to 2**15
REDUCED = BOUNDS["bfloat16"]  # how far logits may be from those of float32
VISIBLE = 1e-4  # what matters changes more than this
BLURRED = 0.01  # rounded distances change more than this; those of FIRE far away, 0.003
LONG = 200  # tokens
FACTORS = (2, 8, 32, 128, 512, 2048)  # of positions: a window shows where tokens leave it
NOISE = 0.3  # dropout, so that layers draw random numbers
LATER = (
    "a later token changes what comes before it; let a token depend on no later one, and in "
    "`normalise` give no weight where context.allowed is false"
)
PADDED = (
    "padding changes the tokens before it; read context.allowed and context.lengths, not the "
    "shape of the batch"
)


def check_later_tokens_and_padding(model: Transformer) -> str:
    """They change nothing of what comes before them.

    The last token of each target is another one; or it is missing, unless some encoding is to know
    the length. Padding is added on both sides, as far as the encodings allow. Sets torch's global
    generator; leaves the model in eval mode.
    """
    text = example.text(model)
    words, n = text.source.shape[1], text.target.shape[1]
    if n > 1:
        last = text.target.clone()
        last[:, -1] = torch.where(last[:, -1] > 4, last[:, -1] - 1, last[:, -1] + 1)
        other = text._replace(target=last)
        _require_equal(model, text, other, n - 1, LATER, training=True)
        if not model.needs_lengths:
            other = text._replace(target=text.target[:, :-1])
        _require_equal(model, text, other, n - 1, LATER)
    source, target = example.within(model, words + PADDING, n + PADDING)

    def pad(rows: Tensor, length: int) -> Tensor:
        return F.pad(rows, (0, max(0, length - rows.shape[1])), value=PAD)

    # a column may have one number for each sentence
    longer = {k: pad(c, source) if c.shape[1] == words > 1 else c for k, c in text.columns.items()}
    padded = Sentences(pad(text.source, source), pad(text.target, target), longer)
    _require_equal(model, text, padded, n, PADDED)
    return "change nothing"


def _require_equal(
    model: Transformer, one: Sentences, other: Sentences, n: int, fault: str, training: bool = False
) -> None:
    """Raise CheckError where two texts differ in the logits of their first n target tokens."""

    def logits(text: Sentences) -> Tensor:
        torch.default_generator.manual_seed(0)  # the same random numbers in each pass
        return full_pass(model.train(training), text)[:, :n]

    first = logits(one)
    moved = relative_difference(first, logits(other))
    # a pass that is no repetition of itself draws random numbers that are not torch's
    if moved > ROUNDING and relative_difference(first, logits(one)) <= ROUNDING:
        names = ",".join(dict.fromkeys(e.name for e in model.entries))
        share = f"by {moved:.2g} of the largest logit{' in training' if training else ''}"
        raise CheckError(f"encoding=[{names}]: {fault} (logits differ {share})")


def check_common_shift_of_positions(model: Transformer) -> float | str:
    """It changes nothing if and only if the entry says `relative`, unless there are several."""
    if (moved := require_relative(model)) is None:
        return "not tried: distances are those of a tree or graph"
    require(
        moved >= ROUNDING or _claims_relative(model) is not False,
        f"`relative` is False (the default), but a common shift of all positions changes logits by "
        f"{moved:.2g} only; if it reads distances alone, set it to True",
    )
    return moved


def require_relative(model: Transformer) -> float | None:
    """Raise CheckError where a model's only entry is `relative`, though a shift moves logits.

    Returns how much it moves them; None where only distances exist.
    """
    moved = shift(model)
    if moved is not None and moved >= ROUNDING and _claims_relative(model):
        raise CheckError(
            "encoding: `relative` is True, but a common shift of all positions changes logits by "
            f"{moved:.2g}; read distances alone (context.delta), or leave `relative` False"
        )
    return moved


def shift(model: Transformer) -> float | None:
    """How much a common shift of all positions changes; None where only distances exist."""
    before = [e.positions for e in model.entries]
    if any(positions.distances_only for positions in before):
        return None
    for e in model.entries:
        e.positions = Scaled(e.positions, 1, SHIFT)
    text = example.text(model)  # as many tokens as tables hold behind the shift
    after = full_pass(model, text)
    for e, positions in zip(model.entries, before, strict=True):
        e.positions = positions
    return relative_difference(full_pass(model, text), after)


def _claims_relative(model: Transformer) -> bool | None:
    """Whether a model's only entry says `relative`.

    None: there are several, which together may depend on absolute positions (see `site`).
    """
    alone = len({e.name for e in model.entries if e.hooks}) < 2
    return all(e.relative for e in model.entries) if alone else None


def check_order_in_the_encoder(model: Transformer, matters: bool | None = True) -> float:
    """Reordered tokens get other states, or merely reordered ones if order does not matter."""
    counted = [e for e in model.entries if e.positions.consecutive]
    for factor in (1, *FACTORS):
        _set_positions(counted, Index(step=factor))
        moved = reordering(model)
        if not matters or moved >= ROUNDING:
            break
    effect = "changes nothing" if matters else "matters, though order_matters=False"
    fault = f"the order of tokens {effect}: largest difference {moved:.2g}"
    require(matters is None or matters == (moved >= ROUNDING), fault)
    return moved


@torch.no_grad()
def reordering(model: Transformer) -> float:
    """How far states of a reordered source are from reordered states."""
    source, _, columns = example.text(model).single(0)
    order = torch.randperm(source.shape[1], generator=torch.Generator().manual_seed(1))
    straight, *_ = model.encode(source, columns)
    turned, *_ = model.encode(source[:, order], columns)
    return relative_difference(straight[:, order], turned)


def check_order_in_the_decoder(model: Transformer) -> float:
    """The last token tells the order of the two before it, which any window has."""
    text = example.text(model)
    target = text.target.clone()
    target[:, -3:-1] = target[:, -3:-1].flip(1)
    turned = text._replace(target=target)
    moved = relative_difference(*(full_pass(model, t)[:, -1] for t in (text, turned)))
    require(moved >= VISIBLE, f"two exchanged tokens change the logits after them by {moved:.2g}")
    return moved


def check_kind_of_positions(model: Transformer) -> float:
    """`position_type` says whether positions are read, and whether halves may stand among them."""
    kinds = {e.position_type for e in model.entries}
    reads, real = bool(kinds - {"none"}), kinds == {"real"}
    moved = between = 0.0  # the effect of positions farther apart, and of those between integers
    for factor in FACTORS:
        _set_positions(model.entries, Index(step=factor))
        text = example.text(model)  # as many tokens as tables hold so far apart
        apart = full_pass(model, text)
        _set_positions(model.entries, Index())
        before = full_pass(model, text)
        moved = max(moved, relative_difference(before, apart))
        if real:
            model.scale_positions(factor - 1.75)
            scaled = full_pass(model, text)
            if scaled.isfinite().all():
                between = max(between, relative_difference(before, scaled))
        if moved > ROUNDING and (between > ROUNDING or not real):
            break
    fault = f"position_type is {' and '.join(map(repr, sorted(kinds)))}, but positions "
    effect = f"times {factor} change logits by {moved:.2g}"
    if reads:
        remedy = "compute from context.delta or query_positions, not from torch.arange"
        require(moved > ROUNDING, f"{fault}{effect} only; {remedy}, or set it to 'none'")
    else:
        remedy = "set it to 'real', or to 'integer' if positions index a table"
        require(moved <= ROUNDING, f"{fault}{effect}; {remedy}")
    remedy = "set it to 'integer'"
    require(not real or between > ROUNDING, f"{fault}between integers change nothing; {remedy}")
    return moved


@dataclass(frozen=True)
class RowSteps(Positions):
    """The token's index times the number of its row, counted from 1."""

    def assign(self, index: Tensor, context: Context) -> Tensor:
        steps = context.draw(lambda rows: torch.arange(1, rows + 1, device=index.device))
        return index * steps[:, None]

    def position_range(self, length: int, training: bool) -> range:
        return range(3 * (length - 1) + 1)


def check_rows_with_positions_of_their_own(model: Transformer) -> float:
    """Each row equals a pass over it alone."""
    _set_positions(model.entries, RowSteps())
    text = example.text(model)
    together, moved = full_pass(model, text), 0.0
    for row, logits in enumerate(together):
        _set_positions(model.entries, Index(step=row + 1))
        alone = full_pass(model, text.single(row))[0]
        moved = max(moved, relative_difference(logits, alone))
    fault = f"rows with different positions differ from passes over one row by {moved:.2g}"
    require(moved <= ROUNDING, f"{fault}; context.query_positions is [batch | 1, query]")
    return moved


def check_far_positions(model: Transformer) -> float:
    """They are distinguished as near ones are, and bfloat16 gives what float32 gives."""
    endless = [e for e in model.entries if e.num_positions is None]
    _set_positions(model.entries, Index(step=FAR_APART))
    moved = [_loss_by_rounding(model, example.text(model))]
    _set_positions(model.entries, Index())
    text, logits = example.text(model), []
    for start in (0, 1, FAR, FAR + 1):
        _set_positions(endless, Index(start))
        logits.append(full_pass(model, text))
        moved.append(_loss_by_rounding(model, text))
    remedy = "compute with positions and angles, and long sums, by at_least_float32"
    fault = f"bfloat16 differs from float32 by {max(moved):.2g}"
    require(max(moved) <= REDUCED, f"{fault}; {remedy}")
    near, far = relative_difference(*logits[:2]), relative_difference(*logits[2:])
    changed = relative_difference(logits[0], logits[2])
    fault = f"a shift by 1 changes logits by {near:.2g} at position 0, and by {far:.2g} at {FAR}"
    require(near <= VISIBLE or far > near / 10, f"{fault}; {remedy}")
    fault = f"distances from {FAR} on differ from those from 0 on by {changed:.2g}"
    require(near >= ROUNDING or changed <= BLURRED, fault)
    return max(moved)


def _loss_by_rounding(model: Transformer, text: Sentences) -> float:
    """How far logits in bfloat16 are from those in float32."""
    with torch.autocast("cpu", torch.bfloat16), checking_hooks(model.entries):
        reduced = full_pass(model, text)
    return relative_difference(reduced, full_pass(model, text))


def check_long_and_empty_sequences(model: Transformer) -> str:
    """Nothing is infinite or NaN, also where no source token may be seen."""
    for longest, second in ((1, 1), (LONG, 1), (LONG, 0)):
        text = example.text(model, source=longest, target=longest, second=second)
        tokens = max(text.source.shape[1], text.target.shape[1])
        kind = f"{tokens} tokens" if second else "a source without any token"
        require(full_pass(model, text).isfinite().all(), f"NaN or infinity for {kind}")
    return f"finite for {text.source.shape[1]} tokens, and for none"


def check_zero_initialised(model: Transformer) -> str:
    """After `zero_initialise` an entry changes nothing, and can learn."""
    text = example.text(model)
    zeroed = [e for e in model.entries if e.zero_initialise()]
    if not zeroed:
        return "not offered"
    names = ", ".join(dict.fromkeys(f"encoding.{e.name}" for e in zeroed))
    before = model(*text)
    before.square().sum().backward()
    for e in zeroed:
        learns = any(p.grad is not None and p.grad.any() for p in e.parameters())
        require(learns, f"{names}: zero-initialised, no parameter gets a gradient")
    for site in model.sites.values():
        site.entries = nn.ModuleList(e for e in site.entries if e not in zeroed)
    moved = relative_difference(before.detach(), full_pass(model, text))
    require(moved <= ROUNDING, f"{names}: zero-initialised, but it changes logits by {moved:.2g}")
    return "changes nothing, and gets gradients"


def check_recomputation(model: Transformer) -> str:
    """Layers that are computed twice give the same bits (trainer.gradient_checkpointing)."""
    for module in model.train().modules():
        if isinstance(module, nn.Dropout):
            module.p = NOISE
        elif isinstance(getattr(module, "dropout", None), float):
            setattr(module, "dropout", NOISE)  # noqa: B010  # no tensor, as nn.Module expects
    for kind in (torch.float32, torch.bfloat16):
        stored, again = (_gradients(copy.deepcopy(model), twice, kind) for twice in (False, True))
        for name, gradient in stored.items():
            same = name in again and torch.equal(gradient, again[name])
            require(same, f"{name} differs in {kind} if computed twice")
    return "the same bits"


def _gradients(model: Transformer, recompute: bool, kind: torch.dtype) -> dict[str, Tensor]:
    """The loss of a padded batch, all gradients, and the state of the generator after them."""
    model.encoder.recompute = model.decoder.recompute = recompute
    text = example.text(model)
    torch.default_generator.manual_seed(4)
    with torch.autocast("cpu", kind, enabled=kind != torch.float32):
        loss = model(text.source, text.target, text.columns).float().square().mean()
    loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return gradients | {"the loss": loss.detach(), "randomness": torch.random.get_rng_state()}


def relative_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number; infinite where one is NaN."""
    unequal = (a != b) & (a.isfinite() | b.isfinite())
    if not unequal.any():
        return 0.0
    most = float((a - b)[unequal].abs().max())
    largest = max(float(t.abs().nan_to_num(0, 0, 0).max()) for t in (a, b))
    return most / largest if most < math.inf else math.inf


def _set_positions(entries: Iterable[Encoding], positions: Positions) -> None:
    for e in entries:
        e.positions = positions


CHECKS: dict[str, Callable[[Transformer], float | str]] = {
    "training step": check_training_step,
    **{  # all of this file, in this order
        name.removeprefix("check_").replace("_", " "): check
        for name, check in [*vars().items()]
        if name.startswith("check_") and check.__module__ == __name__
    },
}
