"""Made-up pairs of ids, the same for everyone: a store for nmt, its batches for peers.

Ids follow Zipf's law over the vocabulary, lengths a log-normal distribution as those of real
sentences roughly do; a target is about as long as its source.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nmt import build, modeldir
from nmt.config.data import columns_of
from nmt.config.settings import Settings
from nmt.corpus.batches import Batches
from nmt.corpus.pairs import SIDES, Pairs, PairStore, id_type, write_pairs
from nmt.corpus.prepare import Prepared
from nmt.system import manifest
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from scripts.bench import flops

PAIRS = 40_000  # as many as the shares of real tokens in other toolkits were measured with
MEAN, SHORTEST, LONGEST = 26, 2, 100  # pieces, eos apart
SPREAD = 0.55  # of the logarithm of a length
AGREE = 0.12  # of the logarithm of target length over source length
FIRST = 0x4E00  # a Chinese character stands for a piece: one word, which no merge can split
NEVER = -1e9  # output bias of what no translation may hold


class SyntheticCorpus(NamedTuple):
    """A store on disk and its first batches."""

    store: Path
    batches: Path  # .npz: source_0, target_0, source_1, ... as `nmt.corpus.batches.Batch` has them
    vocab: int
    updates: int  # of a round
    tokens: list[int]  # target tokens to predict in each batch, eos included
    flops: list[int]  # of training on each batch
    real: tuple[float, ...]  # share of real tokens: source, target


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
    rounds: int,
    *,
    updates: int = 1,
    mean: float = MEAN,
    pairs: int = PAIRS,
    equal: bool = False,
    columns: frozenset[str] = frozenset(),
) -> SyntheticCorpus:
    """Write the store, and the batches that a run gets from it in so many rounds of updates."""
    store, seed = directory / "store", settings.seed
    pieces = lengths(pairs, mean, seed, equal=equal)
    per = {name: what for name, what in columns_of(settings.data).items() if name in columns}
    ids, offsets = {}, {}
    for number, (side, counts) in enumerate(zip(SIDES, pieces, strict=True)):
        offsets[side] = np.append(0, np.cumsum(counts + 1))
        ids[side] = zipf(int(offsets[side][-1]), vocab - SPECIALS, seed + number) + SPECIALS
        ids[side][offsets[side][1:] - 1] = EOS
    filled = {name: draw_column(name, what, pieces[0], seed) for name, what in per.items()}
    lines = np.arange(1, pairs + 1, dtype=np.uint32)
    write_pairs(store, [Pairs(lines, ids, offsets, per, filled)], id_type(vocab), per)
    return write_batches(directory, settings, vocab, rounds, updates)


def write_batches(
    directory: Path, settings: Settings, vocab: int, rounds: int, updates: int
) -> SyntheticCorpus:
    """Write the first batches of a store as a run cuts them, and count what is in them."""
    options, path = settings.trainer, directory / "batches.npz"
    store = PairStore(directory / "store")
    cut = Batches(store, options.batch_tokens, options.batch_count, settings.seed)
    arrays: dict[str, Any] = {}
    tokens, work, real_and_all = [], [], np.zeros((2, 2))  # of each side
    for i in range(min(rounds * updates, cut.size(0))):
        (batch,) = cut.batch(0, i)
        ids = [batch.source.numpy(), batch.target.numpy()]
        read = [ids[0], ids[1][:, 1:]]  # without bos
        source, target = ((side != PAD).sum(1).tolist() for side in read)
        tokens.append(sum(target))
        work.append(flops.training(settings.model, vocab, source, target))
        real_and_all += [[sum(source), sum(target)], [side.size for side in read]]
        arrays |= {f"{side}_{i}": x.astype(np.int32) for side, x in zip(SIDES, ids, strict=True)}
    np.savez(path, **arrays)
    shares = tuple((real_and_all[0] / real_and_all[1]).tolist())
    return SyntheticCorpus(directory / "store", path, vocab, updates, tokens, work, shares)


def draw_column(name: str, per: str, lengths: NDArray[np.int64], seed: int) -> NDArray[np.int32]:
    """Integers of a column of the source: a tree for heads, else the number of each piece."""
    draw = np.random.default_rng([seed, 3])
    if per == "sentence":
        return draw.integers(0, 2, len(lengths)).astype(np.int32)
    if name != "heads":
        places = [np.arange(n + 1, dtype=np.int32) for n in lengths.tolist()]  # eos: the last
        return np.concatenate(places)
    rows = []
    for n in lengths.tolist():  # each hangs on one that came before it in a random order; 0: root
        order = draw.permutation(n)
        above = order[(draw.random(n) * np.arange(n)).astype(np.int64)] + 1
        above[0] = 0
        row = np.zeros(n + 1, np.int32)  # eos: a root
        row[order] = above
        rows.append(row)
    return np.concatenate(rows)


def side(vocab: int) -> Side:
    """A side of so many ids whose pieces are single characters, apart by spaces in the text."""
    pieces = [chr(FIRST + i) for i in range(vocab - SPECIALS)]
    return Side(Bpe(Tokenizer("none", "none", "xx"), [], pieces), Vocabulary(pieces))


def id_of(piece: str) -> int:
    return ord(piece) - FIRST + SPECIALS


def text(sentences: int, vocab: int, seed: int, mean: float = MEAN) -> list[str]:
    counts, _ = lengths(sentences, mean, seed)
    ids = zipf(int(counts.sum()), vocab - SPECIALS, seed)
    rows = np.split(ids, np.cumsum(counts)[:-1])
    return [" ".join(chr(FIRST + i) for i in row.tolist()) for row in rows]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def prepared(store: Path, vocab: int) -> Prepared:
    """The store as a prepared corpus, which is its own development set."""
    pairs, both = PairStore(store), side(vocab)
    facts = {
        "fingerprint": "made up",
        "train_pairs": len(pairs),
        "longest_source": int(pairs.lengths["source"].max()),
        "longest_target": int(pairs.lengths["target"].max()),
    }
    total = {"pairs": len(pairs)}
    counts: dict[str, Any] = {"total": total, "kept": total, "dropped": {}, "unknown_share": {}}
    counts["text"] = {"source": {}, "target": {}}
    return Prepared(store.parent, pairs, pairs, both, both, facts, {"train": counts, "dev": counts})


def write_model(directory: Path, settings: Settings, vocab: int) -> Path:
    """Write a model with random weights that never ends a sentence; returns its directory."""
    torch.manual_seed(settings.seed)
    model = build.transformer(settings, vocab, vocab).eval()
    with torch.no_grad():
        model.output.bias[[PAD, BOS, EOS, UNK]] = NEVER
    both = side(vocab)
    facts = {"longest_source": LONGEST, "longest_target": LONGEST, "step": 0}
    manifest.write(directory / "model", modeldir.parts(settings, model, both, both, facts))
    return directory / "model"
