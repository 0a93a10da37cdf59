"""Made-up pairs of ids, the same for everyone: a store for the product, its batches for peers.

Ids follow Zipf's law over the vocabulary, lengths a log-normal distribution as those of real
sentences roughly do; a target is about as long as its source.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config import Settings, columns_of
from nmt.data.batches import Batches
from nmt.data.bpe import Bpe
from nmt.data.prepare import Prepared
from nmt.data.side import Side
from nmt.data.store import PairStore, Writer, id_type
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocab import EOS, PAD, SPECIALS, Vocabulary
from scripts.bench import flops

PAIRS = 40_000  # as many as the shares of real tokens in other toolkits were measured with
MEAN, SHORTEST, LONGEST = 26, 2, 100  # pieces, eos apart
SPREAD = 0.55  # of the logarithm of a length
AGREE = 0.12  # of the logarithm of target length over source length
FIRST = 0x4E00  # a Chinese character stands for a piece: one word, which no merge can split


class Corpus(NamedTuple):
    """A store on disk and its first batches."""

    store: Path
    batches: Path  # .npz: source_0, target_0, source_1, ... as `nmt.data.batches.Batch` has them
    tokens: list[int]  # target tokens to predict in each batch, eos included
    flops: list[int]  # of training on each batch
    real: tuple[float, float]  # share of real tokens: source, target


def lengths(
    pairs: int, mean: float, seed: int, longest: int = LONGEST, equal: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces of each source and target, eos apart; all of them `mean` where `equal`."""
    if equal:
        same = np.full(pairs, round(mean), np.int64)
        return same, same
    draw = np.random.default_rng([seed, 1])
    source = np.exp(draw.normal(np.log(mean) - SPREAD**2 / 2, SPREAD, pairs))
    target = source * np.exp(draw.normal(0, AGREE, pairs))
    both = [np.clip(np.rint(n), SHORTEST, longest).astype(np.int64) for n in (source, target)]
    return both[0], both[1]


def zipf(count: int, kinds: int, seed: int) -> NDArray[np.int64]:
    """Numbers from 0 to kinds - 1, number i in proportion to 1 / (i + 1)."""
    heights = np.cumsum(1 / np.arange(1, kinds + 1))
    drawn = np.random.default_rng([seed, 2]).random(count) * heights[-1]
    return np.minimum(np.searchsorted(heights, drawn), kinds - 1)


def make(
    directory: Path,
    settings: Settings,
    vocab: int,
    batches: int,
    *,
    mean: float = MEAN,
    pairs: int = PAIRS,
    equal: bool = False,
    columns: frozenset[str] = frozenset(),
) -> Corpus:
    """Write the store, and the first batches that a run with these settings gets from it."""
    source, target = lengths(pairs, mean, settings.seed, equal=equal)
    per = {name: what for name, what in columns_of(settings.data).items() if name in columns}
    store = directory / "store"
    with Writer(store, id_type(vocab), per) as writer:
        for number, (side, each) in enumerate((("source", source), ("target", target))):
            ends = np.cumsum(each + 1) - 1
            ids = zipf(int(ends[-1]) + 1, vocab - SPECIALS, settings.seed + number) + SPECIALS
            ids[ends] = EOS
            writer.add(side, ids, each + 1)
        for name, what in per.items():
            writer.add_column(name, _column(name, what, source, settings.seed))
        writer.add_lines(np.arange(1, pairs + 1))
    options = settings.trainer
    cut = Batches(PairStore(store), options.batch_tokens, options.batch_count, settings.seed)
    arrays: dict[str, Any] = {}
    size = flops.sizes(settings.model, vocab)
    tokens, work, real, all_tokens = [], [], [0, 0], [0, 0]
    for i in range(min(batches, len(cut))):
        batch = cut.batch(0, i)
        sides = batch.source.numpy(), batch.target[:, 1:].numpy()  # without bos
        lengths_here = [(side != PAD).sum(1) for side in sides]
        tokens.append(int(lengths_here[1].sum()))
        work.append(flops.training(size, lengths_here[0].tolist(), lengths_here[1].tolist()))
        for k, ids_here in enumerate(sides):
            real[k] += int(lengths_here[k].sum())
            all_tokens[k] += ids_here.size
        arrays[f"source_{i}"] = batch.source.numpy().astype(np.int32)
        arrays[f"target_{i}"] = batch.target.numpy().astype(np.int32)
    np.savez(directory / "batches.npz", **arrays)
    shares = real[0] / all_tokens[0], real[1] / all_tokens[1]
    return Corpus(store, directory / "batches.npz", tokens, work, shares)


def _column(name: str, per: str, lengths: NDArray[np.int64], seed: int) -> NDArray[np.integer[Any]]:
    """Integers beside the source: a tree for heads, else the number of each piece."""
    draw = np.random.default_rng([seed, 3])
    if per == "sentence":
        return draw.integers(0, 2, len(lengths))
    rows = []
    for n in lengths.tolist():
        if name == "heads":  # each hangs on one that came before it in a random order; 0: the root
            order = draw.permutation(n)
            above = order[(draw.random(n) * np.arange(n)).astype(np.int64)] + 1
            above[0] = 0
            row = np.empty(n, np.int64)
            row[order] = above
        else:
            row = np.arange(n)
        rows.append(np.append(row, 0 if name == "heads" else n))  # eos: a root, the last place
    return np.concatenate(rows)


def side(vocab: int) -> Side:
    """A side of so many ids whose pieces are single characters, apart by spaces in the text."""
    pieces = [chr(FIRST + i) for i in range(vocab - SPECIALS)]
    return Side(Bpe(Tokenizer("none", "none", "xx"), [], pieces), Vocabulary(pieces))


def text(sentences: int, vocab: int, seed: int, mean: float = MEAN) -> list[str]:
    """Source lines for `side(vocab)`."""
    each, _ = lengths(sentences, mean, seed)
    ids = zipf(int(each.sum()), vocab - SPECIALS, seed)
    rows = np.split(ids, np.cumsum(each)[:-1])
    return [" ".join(chr(FIRST + i) for i in row.tolist()) for row in rows]


def prepared(store: Path, vocab: int) -> Prepared:
    """The store as a prepared corpus, which is its own development set."""
    pairs = PairStore(store)
    both = side(vocab)
    facts: Mapping[str, Any] = {
        "fingerprint": "made up",
        "train_pairs": len(pairs),
        "longest_source": int(pairs.source_lengths.max()),
        "longest_target": int(pairs.target_lengths.max()),
        "corpus": {},  # nothing was dropped
    }
    return Prepared(store.parent, pairs, pairs, both, both, dict(facts))
