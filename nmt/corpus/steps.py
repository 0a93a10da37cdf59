"""The steps of a preparation: clean, learn, number, store."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data, Segmentation, columns_of
from nmt.corpus import report
from nmt.corpus.learn import learn_bpe_sides, learn_unigram_sides
from nmt.corpus.pairs import SIDES, Corpora, Pairs, PairStore, id_type, write_pairs
from nmt.corpus.passes import CleanedChunk, Cleaning, Numbering
from nmt.corpus.report import Counts
from nmt.corpus.scan import SPLITS, ParallelText
from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.system.pool import WorkerPool, in_order
from nmt.system.progress import track
from nmt.system.resources import cores
from nmt.text.protection import tokenizers_of
from nmt.text.side import Sides
from nmt.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)
FEW_LINES = 30_000  # that one process prepares sooner than several
BLOCK = 2**16  # pairs that are copied at a time


class Counted(NamedTuple):
    """What was counted in a split."""

    counts: Counts  # of pairs by outcome
    changes: list[Counter[str]]  # by side: lines and characters that were changed
    hashes: NDArray[np.uint64]  # [pair] of those that are kept


class Preparation:
    """Makes the files of a prepared corpus from its text."""

    def __init__(
        self,
        data: Data,
        segmenter: Segmentation,
        sides: Sides | None,
        texts: dict[str, list[ParallelText]],
    ) -> None:
        """`sides`: of a trained model, or of files; None: both are learned as `segmenter` says."""
        self.data, self.segmenter, self.sides, self.texts = data, segmenter, sides, texts
        # BPE is learned from counts of words
        self.counts_words = sides is None and segmenter.kind == "bpe"
        sizes = [size for text in texts["train"] for size in text.sizes()]
        self.lines = sum(sizes)
        usual = 1 if self.lines < FEW_LINES else min(cores(), len(sizes))
        self.workers = data.workers or usual

    def write(self, directory: Path) -> dict[str, Any]:
        """Fill a directory; returns a report of each split, and the sizes of the vocabularies."""
        started, number = time.monotonic(), self.data.dev_lines
        tokenizers = self._tokenizers()
        several = f" with {self.workers} processes" if self.workers > 1 else ""
        log.info("preparing %s lines%s", f"{self.lines:,}", several)
        splits = [split for split in SPLITS if self.texts[split]]
        with TemporaryDirectory(dir=directory) as work:
            words = [Counter[str](), Counter[str]()]
            cleaned = {s: self._clean(s, tokenizers, words, Path(work, s)) for s in splits}
            if self.sides is not None:
                sides = self.sides
            elif self.counts_words:
                sides = learn_bpe_sides(self.segmenter, tokenizers, words)
            else:
                sides = learn_unigram_sides(self.segmenter, tokenizers, cleaned["train"])
            del words  # its memory is needed
            for name, side in zip(SIDES, sides, strict=True):
                (directory / f"{name}.json").write_bytes(manifest.dump(side.to_json()))
            stores = Path(work, "whole") if number else directory
            counted = {s: self._number(s, sides, cleaned[s], stores / s) for s in splits}
            if number:
                counted = hold_out(stores / "train", directory, counted["train"], number)
        log.info("prepared in %.0f s", time.monotonic() - started)
        return _report(directory, counted, sides)

    def _tokenizers(self) -> list[Tokenizer]:
        """Return those of both sides; UserError for an imported segmenter without its model."""
        if self.sides is not None:
            return [side.segmenter.tokenizer for side in self.sides]
        if self.segmenter.kind == "imported":
            raise UserError(
                "segmenter.kind=imported: comes with a model that was imported; give its directory "
                "as trainer.init_from"
            )
        return tokenizers_of(self.data, self.segmenter.tokenizer)

    def _pool(self, split: str, function: Callable[..., Any]) -> WorkerPool:
        """Return workers that have a function, and what it needs, by the fork.

        The development text has few lines, and each worker would have to segment all their words.
        """
        count = self.workers if split == "train" else 1
        return WorkerPool(count, "data.workers", f"set data.workers below {count}", [function])

    def _clean(
        self,
        split: str,
        tokenizers: Sequence[Tokenizer],
        words: Sequence[Counter[str]],
        directory: Path,
    ) -> list[CleanedChunk]:
        """Clean a split; adds its words to `words`, by side, and returns its chunks without."""
        directory.mkdir()
        counts_words = self.counts_words and split == "train"
        clean = Cleaning(self.data, tokenizers, counts_words, directory).clean
        cleaned: list[CleanedChunk] = []
        with self._pool(split, clean) as pool:
            for text in self.texts[split]:
                chunks = in_order(pool, clean, text.chunks())
                for chunk in track(chunks, f"tokenising {text.corpus or split}", text.sizes()):
                    for total, of_chunk in zip(words, chunk.words, strict=True):
                        total.update(of_chunk)
                    cleaned.append(chunk._replace(words=()))
        return cleaned

    def _number(
        self, split: str, sides: Sides, cleaned: Sequence[CleanedChunk], path: Path
    ) -> Counted:
        """Write the store of a split; UserError (65) if no pair of a corpus is left."""
        texts = self.texts[split]
        counted = Counted(Counter(), [Counter(), Counter()], np.zeros(0, np.uint64))
        hashes = list[NDArray[np.uint64]]()
        columns = {name: file.path for name, file in texts[0].columns.items()}
        number = Numbering(self.data, sides, columns, limited=split == "train").number

        def parts(pool: WorkerPool) -> Iterator[Pairs]:
            numbered = in_order(pool, number, [chunk.path for chunk in cleaned])
            sizes = [chunk.pairs for chunk in cleaned]
            for chunk, part in zip(
                cleaned, track(numbered, f"segmenting {split}", sizes), strict=True
            ):
                counted.counts.update(chunk.counts + part.counts)
                for changes, of_chunk in zip(counted.changes, chunk.changes, strict=True):
                    changes.update(of_chunk)
                hashes.append(part.hashes)
                yield part.pairs

        names, tagged = [text.corpus for text in texts], [bool(text.tag) for text in texts]
        first = [text.before + 1 for text in texts]
        corpora = Corpora(names, first, tagged) if texts[0].corpus else None
        dtype = id_type(*(len(side.vocabulary) for side in sides))
        with self._pool(split, number) as pool:  # first, so that workers have no file to write
            write_pairs(path, parts(pool), dtype, columns_of(self.data), corpora)
        for name in names:
            if not counted.counts[name, report.KEPT, "pairs"]:
                where = f"corpora.{name}" if name else f"name={self.data.name}"
                why = report.say_why_dropped(counted.counts, name)
                problem = f"no pair of the {split} text is left; {why}"
                raise UserError(f"data.{where}: {problem}", Exit.DATA)
        return counted._replace(hashes=np.concatenate(hashes))


def hold_out(whole: Path, directory: Path, counted: Counted, number: int) -> dict[str, Counted]:
    """Divide pairs that training would keep: `number` of them, evenly spread, are the dev text.

    None of these is in the training text, wherever it occurs. Writes both stores. Raises UserError
    (65) if too few pairs are left.
    """
    store, hashes = PairStore(whole), counted.hashes
    if 2 * number > len(store):
        raise UserError(
            f"data.dev_lines={number}: {len(store)} pairs of the training text are kept; hold out "
            "half of them at most",
            Exit.DATA,
        )
    chosen = np.arange(number) * len(store) // number
    is_held = np.isin(hashes, hashes[chosen])
    rows = {"train": np.flatnonzero(~is_held), "dev": chosen}
    for split, of_split in rows.items():
        if not len(of_split):
            raise UserError(f"data.dev_lines={number}: all other pairs are repetitions", Exit.DATA)
        blocks = np.array_split(of_split, -(-len(of_split) // BLOCK))
        write_pairs(directory / split, map(store.select, blocks), store.ids["source"].dtype)

    def count(rows: NDArray[np.int64], outcome: str) -> Counts:
        lengths = [store.lengths[side][rows] for side in SIDES]
        return report.count_pairs(np.zeros(len(rows), int), [outcome], lengths)

    held = np.flatnonzero(is_held)
    counts = counted.counts - count(held, report.KEPT) + count(held, report.HELD_OUT)
    return {
        "train": Counted(counts, counted.changes, hashes[rows["train"]]),
        "dev": Counted(count(chosen, report.KEPT), [Counter(), Counter()], hashes[chosen]),
    }


def _report(directory: Path, counted: dict[str, Counted], sides: Sides) -> dict[str, Any]:
    """Write the hashes of training pairs, and return what was counted of a corpus."""
    train, dev = counted["train"].hashes, counted["dev"].hashes
    unique = np.unique(train)
    (directory / "train" / "hashes").write_bytes(unique.tobytes())
    stores = {split: PairStore(directory / split) for split in SPLITS}
    reports = {
        split: report.report_split(of.counts, of.changes, stores[split], sides)
        for split, of in counted.items()
    }
    reports["train"]["duplicates"] = len(train) - len(unique)
    reports["dev"]["known"] = int(np.isin(dev, unique).sum())
    reports["dev"] |= report.count_symbols(stores["train"], stores["dev"], sides[0])
    sizes = {name: len(side.vocabulary) for name, side in zip(SIDES, sides, strict=True)}
    return reports | {"vocabulary": sizes}
