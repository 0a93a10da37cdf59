"""Does decoding with a cache say what one causal pass over the whole target says?

Both must give the same logits, whatever the encoding: this is what makes a translation the one
that the trained model means. Each condition below decodes in another way that has gone wrong
somewhere: buffers kept from an earlier pass, several tokens at once, beams that change rows,
padding, room that a cache holds beyond its length. The reference is always the full pass of a
fresh copy of the module, so that nothing which decoding leaves behind can spoil both alike.
"""

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nmt import build
from nmt.config import Settings
from nmt.errors import UserError, whence
from nmt.model import example
from nmt.model.attention import at_least_float32
from nmt.model.state import State
from nmt.model.transformer import PAD, Transformer

VOCAB = 40  # word types of the made-up text
TOKENS = 40  # of the target; a cache doubles its room at 17 and at 35
SOURCE = 12  # tokens of the source

FLOAT32 = 2**-18
"""Largest difference of two logits in float32, in units of the largest logit.

32 units of its last place. Processors sum in other orders: differences were up to 8 of them.
"""

BFLOAT16 = 1 / 16
"""The same in bfloat16.

A number in bfloat16 has 8 significant bits, so each rounding moves it by up to 1/512 of itself.
Decoding multiplies matrices of other shapes and so rounds other sums; layer norm keeps the states
as large as they were, so the differences add up over some ten rounded results per layer.
"""


class Sentences(NamedTuple):
    """A made-up batch, padded on the right."""

    source: Tensor  # [rows, source]
    target: Tensor  # [rows, target]
    columns: dict[str, Tensor]  # [rows, source | 1] each

    def take(self, rows: Tensor) -> "Sentences":
        """Row i becomes old row rows[i]."""
        columns = {name: c[rows] for name, c in self.columns.items()}
        return Sentences(self.source[rows], self.target[rows], columns)

    def alone(self, row: int) -> "Sentences":
        """One row without its padding."""
        one = self.take(torch.tensor([row]))
        source, target = (int((t != PAD).sum()) for t in (one.source, one.target))
        columns = {n: c if c.shape[1] == 1 else c[:, :source] for n, c in one.columns.items()}
        return Sentences(one.source[:, :source], one.target[:, :target], columns)


class Decoding:
    """Hypotheses that grow with a cache, and the logits on their way."""

    def __init__(self, model: Transformer, text: Sentences) -> None:
        self.model, self.text, self.done = model, text, 0
        lengths = (text.target != PAD).sum(1) if model.needs_lengths else None
        self.state = model.start(text.source, text.columns, lengths)
        self._logits: list[Tensor] = []  # [rows, n, vocab] each

    @property
    def logits(self) -> Tensor:
        """What was said so far [rows, done, vocab]."""
        return torch.cat(self._logits, 1)

    def grow(self, end: int, together: bool = False) -> None:
        """Read the target up to `end`, token by token or in one go."""
        while self.done < end:
            tokens = self.text.target[:, self.done : end if together else self.done + 1]
            states = self.model.advance(tokens, self.state)
            self._logits.append(at_least_float32(self.model.logits(states)))
            self.done += tokens.shape[1]

    def reorder(self, rows: list[int]) -> None:
        """Row i becomes old row rows[i]; from here on every row gets tokens of its own."""
        chosen = torch.tensor(rows)
        self.state.reorder(chosen)
        self._logits = [self.logits[chosen]]
        self.text = self.text.take(chosen)
        rest = self.text.target[:, self.done :]
        other = example.ids(len(rows), rest.shape[1], VOCAB, seed=self.done)
        rest.copy_(other.where(rest != PAD, rest))


Pairs = list[tuple[Tensor, Tensor]]
"""Logits [n, vocab] that were computed, and what they must be."""


class Trial:
    """A module for one condition, with the text that it is asked about."""

    def __init__(self, pristine: Transformer, tokens: int, seed: int) -> None:
        self._pristine, self.seed = pristine, seed
        self.model = self.fresh()
        self.tokens = min(tokens, self.model.target_limit or tokens)
        self.source = min(SOURCE, self.model.source_limit or SOURCE)

    def fresh(self) -> Transformer:
        """A copy that has computed nothing yet."""
        return copy.deepcopy(self._pristine)

    def text(self, rows: int = 3, source: list[int] | None = None, spread: int = 0) -> Sentences:
        """Make rows of `source` lengths; the target of row i lacks i x spread tokens."""
        lengths = source or [self.source] * rows
        ids = example.ids(rows, max(lengths), VOCAB, seed=self.seed)
        target = example.ids(rows, self.tokens, VOCAB, seed=self.seed + 1)
        for row, length in enumerate(lengths):
            ids[row, length:] = PAD
            target[row, max(1, self.tokens - row * spread) :] = PAD
        return Sentences(ids, target, self._columns(ids))

    def _columns(self, ids: Tensor) -> dict[str, Tensor]:
        """Made-up columns in which not all rows are alike, or mixing them up would not show."""
        made: dict[str, Tensor] = {}
        for seed in range(self.seed, self.seed + 100):
            made = example.columns(self.model.columns, ids, seed)
            if len(ids) == 1 or all((c != c[:1]).any() for c in made.values()):
                break
        return made

    def against_full(self, decoding: Decoding) -> Pairs:
        """What was decoded beside the full pass of a fresh copy, real tokens only."""
        real = decoding.text.target != PAD
        return [(decoding.logits[real], full(self.fresh(), decoding.text)[real])]


def full(model: Transformer, text: Sentences) -> Tensor:
    """The logits [rows, target, vocab] of one causal pass."""
    return at_least_float32(model(text.source, text.target, text.columns))


def _fresh(trial: Trial) -> Pairs:
    decoding = Decoding(trial.model, trial.text(spread=3))
    decoding.grow(trial.tokens)
    return trial.against_full(decoding)


def _used(trial: Trial) -> Pairs:
    """Longer and shorter passes before, and the module's own pass afterwards."""
    room = trial.model.target_limit or 2 * trial.tokens
    for rows, length in ((5, min(2 * trial.tokens, room)), (1, max(1, trial.tokens // 4))):
        other = trial.text(rows)
        full(trial.model, other._replace(target=example.ids(rows, length, VOCAB, seed=length)))
    decoding = Decoding(trial.model, trial.text())
    decoding.grow(trial.tokens)
    after, should = (full(m, decoding.text) for m in (trial.model, trial.fresh()))
    return [*trial.against_full(decoding), (after.flatten(0, 1), should.flatten(0, 1))]


def _prefix(trial: Trial) -> Pairs:
    decoding, n = Decoding(trial.model, trial.text()), trial.tokens
    decoding.grow(n // 4, together=True)
    decoding.grow(n // 2)
    decoding.grow(3 * n // 4, together=True)  # several tokens where keys are cached already
    decoding.grow(n)
    return trial.against_full(decoding)


def _beam(trial: Trial) -> Pairs:
    decoding, n = Decoding(trial.model, trial.text(spread=2)), trial.tokens
    decoding.grow(n // 8)
    decoding.reorder([0, 0, 1, 1, 2, 2])  # two hypotheses of each sentence
    decoding.grow(n // 4)
    decoding.reorder([1, 0, 3, 3, 5, 4])  # within each sentence, as beam search does
    decoding.grow(n // 2)
    decoding.reorder([4, 1, 1, 2])  # sentences change places, half of the rows go
    decoding.grow(3 * n // 4)
    decoding.reorder([3, 0, 0, 2, 1])
    decoding.grow(n)
    return trial.against_full(decoding)


def _padded(trial: Trial) -> Pairs:
    """Rows of a padded batch, decoded and in one pass, beside each row on its own."""
    n = trial.source
    text = trial.text(4, source=[max(1, n // 2), n, max(1, n // 4), max(1, n - 1)], spread=3)
    decoding = Decoding(trial.model, text)
    decoding.grow(trial.tokens)
    together = full(trial.fresh(), text)
    pairs: Pairs = []
    for row in range(len(text.source)):
        alone = full(trial.fresh(), text.alone(row))[0]  # [its target, vocab]
        pairs += [(t[row, : len(alone)], alone) for t in (decoding.logits, together)]
    return pairs


def _room(trial: Trial) -> Pairs:
    """What a cache holds beyond its length is made NaN after every step."""
    decoding, n = Decoding(trial.model, trial.text()), trial.tokens
    decoding.grow(2, together=True)
    for end in range(2, n):
        if end == n // 2:
            decoding.reorder([2, 0, 1])
        _spoil(decoding.state)
        decoding.grow(end + 1)
    return trial.against_full(decoding)


def _spoil(state: State) -> None:
    for cache in (*state.own, *state.cross):
        for held in (cache._k, cache._v):
            if held is not None:
                held[:, :, cache.length :] = math.nan


class Condition(NamedTuple):
    """One way to decode."""

    name: str
    meaning: str
    look: str  # where the mistake is if this condition is the first that fails
    decode: Callable[[Trial], Pairs]


CONDITIONS = (
    Condition(
        "fresh", "a module that has computed nothing before, one token at a time",
        "positions while one token is decoded (context.queries, keys, delta; one query, all keys), "
        "and what is handed on in context.state", _fresh,
    ),
    Condition(
        "used", "the same after full passes of other lengths and batch sizes",
        "what the module keeps from one pass to the next: buffers that grow, memos that are not "
        "context.once, names in context.once that two objects share", _used,
    ),
    Condition(
        "prefix", "several tokens in one go, at the start and in the middle",
        "several new tokens behind cached ones: context.new_keys, rows of delta, and how "
        "context.state is carried over more than one token", _prefix,
    ),
    Condition(
        "beam", "rows repeated, swapped, dropped and made to change places in the middle",
        "what reorder does not reach: tensors in context.state must have rows first, and nothing "
        "else may be kept for a row", _beam,
    ),
    Condition(
        "padded", "sources and targets of different lengths, beside each row without padding",
        "what depends on the padded length instead of context.lengths, or looks at padding",
        _padded,
    ),
    Condition(
        "room", "what the cache holds beyond its length is NaN, while its room doubles twice",
        "what reads keys or values beyond the length of the cache", _room,
    ),
)  # fmt: skip
PRECISIONS = ("float32", "bfloat16")


class Deviation(NamedTuple):
    """What one condition gave in one precision."""

    condition: Condition
    precision: str
    difference: float  # the largest of two logits; NaN if one is not finite
    largest: float  # logit of the full pass, its sign apart
    error: str | None = None  # what was raised instead

    @property
    def bound(self) -> float:
        """The largest difference that is let pass."""
        return (FLOAT32 if self.precision == "float32" else BFLOAT16) * self.largest

    @property
    def share(self) -> float:
        """The difference in units of its bound; infinite where nothing was computed."""
        return self.difference / self.bound if self.difference < math.inf else math.inf

    @property
    def passed(self) -> bool:
        """Whether the difference is finite and within its bound."""
        return self.error is None and self.difference <= self.bound < math.inf


def measure(settings: Settings, tokens: int = TOKENS) -> list[Deviation]:
    """Decode made-up text in every condition and precision, with settings.seed.

    Targets have `tokens` tokens, or as many as the encodings can hold. Raises UserError for a
    model that is refused. Any other exception is a cell that failed, not an end: the other cells,
    and the other encodings, tell where to look.
    """
    every = [(c, p) for p in PRECISIONS for c in CONDITIONS]
    try:
        pristine = moved(settings)
    except UserError:
        raise
    except Exception as e:
        return [Deviation(c, p, math.nan, math.nan, whence(e)) for c, p in every]
    return [_deviation(c, p, Trial(pristine, tokens, settings.seed)) for c, p in every]


def moved(settings: Settings) -> Transformer:
    """A model in eval mode with every parameter away from where it starts.

    Tables that start at zero would hide every mistake in how they are read.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build.transformer(settings, VOCAB, VOCAB)
        noise = 0.1 * min(1.0, 32 / settings.model.dim) ** 0.5  # wide sums must not grow by it
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * noise)
    return model.eval()


def _deviation(condition: Condition, precision: str, trial: Trial) -> Deviation:
    reduced = precision == "bfloat16"
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=reduced):
            difference, largest = _compared(condition.decode(trial))
    except Exception as e:  # any mistake of an encoding, in any of its hooks
        return Deviation(condition, precision, math.nan, math.nan, whence(e))
    return Deviation(condition, precision, difference, largest)


def _compared(pairs: Pairs) -> tuple[float, float]:
    """The largest difference, NaN if anything is not finite, and the largest logit."""
    a, b = (torch.cat(side) for side in zip(*pairs, strict=True))
    if not (a.isfinite().all() and b.isfinite().all()):
        return math.nan, math.nan
    return float((a - b).abs().max()), float(b.abs().max())
