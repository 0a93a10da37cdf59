"""Small models with any encoding, and synthetic sentences for them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.build import meta_model, shrink, transformer
from nmt.config.settings import Settings
from nmt.encodings.base import Encoding, at_least_float32, common_ranges
from nmt.model.transformer import Transformer
from nmt.text.vocab import PAD, SPECIALS

NOISE = 0.1  # on every parameter of a perturbed model
LABELS = 7  # of edges
VOCAB = 40  # word types of the synthetic text, at most
DEEPEST = 32  # layers of a small model, at most


def small_settings(
    encoding: str, overrides: Sequence[str] = (), entries: dict[str, dict[str, Any]] | None = None
) -> Settings:
    """Settings of a small model with an option of encoding=, or with `entries` instead.

    It has two layers, or more if `layers` of an entry names them.
    """
    from nmt.config.compose import experiment_of  # takes 0.2 s, which an import would wait for

    settings = experiment_of([*overrides, f"encoding={encoding}"]).settings
    deep = replace(settings.model, encoder_layers=DEEPEST, decoder_layers=DEEPEST)
    entries = settings.encoding if entries is None else entries
    return shrink(replace(settings, model=deep, encoding=entries))


def build_perturbed(settings: Settings) -> Transformer:
    """A model in eval mode, with noise added to all parameters.

    Raises UserError if it cannot be built, with numbers or without, as cards have it.
    """
    meta_model(settings, VOCAB, VOCAB)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = transformer(settings, VOCAB, VOCAB)
        add_noise(model, settings)
    return model.eval()


@torch.no_grad()
def add_noise(model: Transformer, settings: Settings) -> None:
    """Move all parameters, as initial zeros hide mistakes; draws from torch's global generator."""
    noise = NOISE * min(1.0, 32 / settings.model.dim) ** 0.5  # wide sums must not grow by it
    for p in model.parameters():
        p.add_(torch.randn_like(p) * noise)


class Sentences(NamedTuple):
    """A synthetic batch, padded on the right."""

    source: Tensor  # [rows, source]
    target: Tensor  # [rows, target]
    columns: dict[str, Tensor]  # [rows, source | 1] each

    def take(self, rows: Tensor) -> "Sentences":
        """Row i becomes old row rows[i]."""
        columns = {name: c[rows] for name, c in self.columns.items()}
        return Sentences(self.source[rows], self.target[rows], columns)

    def single(self, row: int) -> "Sentences":
        """One row without its padding."""
        source, target, columns = self.take(torch.tensor([row]))
        source, target = (ids[:, : int((ids != PAD).sum())] for ids in (source, target))
        cut = {name: c[:, : source.shape[1]] for name, c in columns.items()}
        return Sentences(source, target, cut)


@torch.no_grad()
def full_pass(model: Transformer, text: Sentences) -> Tensor:
    """The logits [rows, target, vocab] of one causal pass."""
    return at_least_float32(model(*text))


def ids(rows: int, length: int, vocab: int, seed: int = 0) -> Tensor:
    """Random token ids [rows, length] above the special ones."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(SPECIALS, vocab, (rows, length), generator=draw)


def random_ids(model: Transformer, rows: int, length: int, seed: int) -> Tensor:
    """Random ids [rows, length] that both vocabularies of a model have, on its device."""
    tables = model.source_embedding, model.target_embedding
    vocab = min(VOCAB, *(table.num_embeddings for table in tables))
    return ids(rows, length, vocab, seed).to(tables[0].weight.device)


def text(model: Transformer, source: int = 9, target: int = 8, second: int = 6) -> Sentences:
    """Three sentences as long as the model can hold, the second source of fewer tokens.

    All sizes differ, so that exchanged axes show.
    """
    source, target = within(model, source, target)
    return sentences(model, [source, min(second, source), source], [target] * 3)


def sentences(
    model: Transformer, source: Sequence[int], target: Sequence[int], seed: int = 0
) -> Sentences:
    """Rows of these lengths with the columns that the model reads, on its device.

    Not all rows of a column are alike, or mixing them up would not show.
    """
    sides = []
    for offset, lengths in enumerate((source, target)):
        sides.append(random_ids(model, len(lengths), max(lengths), seed + offset))
        for row, length in zip(sides[-1], lengths, strict=True):
            row[length:] = PAD
    for draw in range(seed, seed + 100):
        drawn = columns(model.entries, sides[0].cpu(), draw)
        if len(source) == 1 or all((c != c[:1]).any() for c in drawn.values()):
            break
    drawn = {name: c.to(sides[0].device) for name, c in drawn.items()}
    return Sentences(sides[0], sides[1], drawn)


def within(model: Transformer, source: int, target: int) -> tuple[int, int]:
    """These lengths, or the longest that a model holds in training and in evaluation."""
    limits = model.limits(training=True), model.limits(training=False)
    sides = zip((source, target), *limits, strict=True)
    source, target = (min(n for n in side if n is not None) for side in sides)
    return source, target


def columns(encodings: Iterable[Encoding], source: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """The columns that encodings read, parallel to source ids [rows, length] that may be padded.

    Their `sentence_columns` have 0 and 1 in turns [rows, 1]. All are clamped to what the encodings
    can represent.
    """
    draw = torch.Generator().manual_seed(seed)
    encodings = list(encodings)
    per_sentence = {name for e in encodings for name in e.sentence_columns}
    result: dict[str, Tensor] = {}
    for name in sorted({name for e in encodings for name in e.columns}):
        if name in per_sentence:
            first = torch.randint(0, 2, (1,), generator=draw)
            result[name] = ((torch.arange(len(source)) + first) % 2)[:, None]
        else:
            result[name] = torch.zeros_like(source)
            for row, n in zip(result[name], (source != PAD).sum(1).tolist(), strict=True):
                row[:n] = _column(name, n, draw)
    for name, values in common_ranges(e.integers_of_columns for e in encodings).items():
        result[name] = result[name].clamp(values.start, values.stop - 1)
    return result


def _column(name: str, n: int, draw: torch.Generator) -> Tensor:
    """`heads`: a random tree; `labels`: small numbers; `words`: a count; else a permutation."""
    order = torch.randperm(n, generator=draw)
    if name == "heads":  # the head of each token comes before it in a random order
        heads = torch.zeros_like(order)
        for i in range(1, n):
            heads[order[i]] = order[torch.randint(0, i, (), generator=draw)] + 1
        return heads
    if name == "words":
        return torch.arange(n)
    return order % LABELS if name == "labels" else order
