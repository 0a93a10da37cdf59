"""Made-up pairs of ids, the same for all: a store for nmt, its batches for peers.

Ids follow Zipf's law over the vocabulary, lengths a log-normal distribution as those of real
sentences roughly do; a target is about as long as its source.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nmt import build, modeldir
from nmt.config.settings import Settings
from nmt.corpus.batches import Batches
from nmt.corpus.pairs import SIDES, Pairs, id_type, read_pairs, write_pairs
from nmt.corpus.prepare import Prepared
from nmt.system import manifest
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

PAIRS = 40_000
MEAN, SHORTEST, LONGEST = 26, 2, 100  # pieces, without eos
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


def lengths(
    pairs: int, mean: float, seed: int, equal: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces of each source and target, without eos; all of them `mean` if `equal`."""
    if equal:
        same = np.full(pairs, round(mean), np.int64)
        return same, same
    draw = np.random.default_rng([seed, 1])
    source = np.exp(draw.normal(np.log(mean) - SPREAD**2 / 2, SPREAD, pairs))
    target = source * np.exp(draw.normal(0, AGREE, pairs))
    both = [np.clip(np.rint(n), SHORTEST, LONGEST).astype(np.int64) for n in (source, target)]
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
) -> SyntheticCorpus:
    """Write the store, and the batches that a run gets from it in so many rounds of updates."""
    store, seed = directory / "store", settings.seed
    pieces = lengths(pairs, mean, seed, equal=equal)
    ids, offsets = {}, {}
    for number, (side, counts) in enumerate(zip(SIDES, pieces, strict=True)):
        offsets[side] = np.append(0, np.cumsum(counts + 1))
        ids[side] = zipf(int(offsets[side][-1]), vocab - SPECIALS, seed + number) + SPECIALS
        ids[side][offsets[side][1:] - 1] = EOS
    lines = np.arange(1, pairs + 1, dtype=np.uint32)
    write_pairs(store, [Pairs(lines, ids, offsets)], id_type(vocab))
    return write_batches(directory, settings, vocab, rounds, updates)


def write_batches(
    directory: Path, settings: Settings, vocab: int, rounds: int, updates: int
) -> SyntheticCorpus:
    """Write the first batches of a store as a run cuts them, and count their tokens."""
    options, path = settings.trainer, directory / "batches.npz"
    store = read_pairs(directory / "store")
    cut = Batches(store, options.batch_tokens, options.batch_count, settings.seed)
    arrays: dict[str, Any] = {}
    tokens = []
    for i in range(min(rounds * updates, cut.size(0))):
        (batch,) = cut.batch(0, i)
        tokens.append(int((batch.target[:, 1:] != PAD).sum()))  # without bos
        arrays[f"source_{i}"] = batch.source.numpy().astype(np.int32)
        arrays[f"target_{i}"] = batch.target.numpy().astype(np.int32)
    np.savez(path, **arrays)
    return SyntheticCorpus(directory / "store", path, vocab, updates, tokens)


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
    pairs, both = read_pairs(store), side(vocab)
    facts = {
        "fingerprint": "made up",
        "train_pairs": len(pairs),
        "longest_source": int(pairs.lengths["source"].max()),
        "longest_target": int(pairs.lengths["target"].max()),
    }
    total = {"pairs": len(pairs)}
    counts: dict[str, Any] = {"total": total, "kept": total, "dropped": {}, "unknown_share": {}}
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
