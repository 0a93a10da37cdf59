"""The steps of a preparation: clean, learn, number, store."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data, Segmentation, columns_of
from nmt.corpus import report
from nmt.corpus.learn import learn_bpe_sides, learn_unigram_sides
from nmt.corpus.pairs import SIDES, Corpora, Pairs, PairStore, id_type, write_pairs
from nmt.corpus.passes import CleanedChunk, Cleaning, Counted, Numbering
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
        self.counted = {split: Counted() for split in SPLITS}
        self.hashes = dict[str, NDArray[np.uint64]]()  # by split [pair]
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
            chunks = {split: self._clean(split, tokenizers, Path(work, split)) for split in splits}
            sides = self.sides or self._learn(tokenizers, chunks["train"])
            for name, side in zip(SIDES, sides, strict=True):
                (directory / f"{name}.json").write_bytes(manifest.dump(side.to_json()))
            stores = Path(work, "whole") if number else directory
            for split in splits:
                self._number(split, sides, chunks[split], stores / split)
            if number:
                self._hold_out(stores / "train", directory, number)
        log.info("prepared in %.0f s", time.monotonic() - started)
        return self._report(directory, sides)

    def _tokenizers(self) -> list[Tokenizer]:
        if self.sides is not None:
            return [side.segmenter.tokenizer for side in self.sides]
        if self.segmenter.kind == "imported":
            raise UserError(
                "segmenter.kind=imported: comes with a model that was imported; give its directory "
                "as trainer.init_from"
            )
        return tokenizers_of(self.data, self.segmenter)

    def _pool(self, split: str, function: Callable[..., Any]) -> WorkerPool:
        """Workers that inherit a function and its data by the fork.

        One process prepares the development text: it has few lines, and each worker would have to
        segment all their words.
        """
        count = self.workers if split == "train" else 1
        return WorkerPool(count, "data.workers", f"set data.workers below {count}", [function])

    def _clean(
        self, split: str, tokenizers: Sequence[Tokenizer], directory: Path
    ) -> list[CleanedChunk]:
        """Clean a split; returns its chunks without their words, which are counted."""
        directory.mkdir()
        counts_words, counted = self.counts_words and split == "train", self.counted[split]
        clean = Cleaning(self.data, tokenizers, counts_words, directory).clean
        cleaned: list[CleanedChunk] = []
        with self._pool(split, clean) as pool:
            for text in self.texts[split]:
                chunks = in_order(pool, clean, text.chunks())
                for chunk in track(chunks, f"tokenising {text.corpus or split}", text.sizes()):
                    counted.add(chunk.counted)
                    cleaned.append(chunk._replace(counted=Counted()))
        return cleaned

    def _learn(self, tokenizers: Sequence[Tokenizer], chunks: Sequence[CleanedChunk]) -> Sides:
        if self.segmenter.kind != "bpe":
            return learn_unigram_sides(self.segmenter, tokenizers, chunks)
        sides = learn_bpe_sides(self.segmenter, tokenizers, self.counted["train"].words)
        self.counted["train"].words.clear()  # its memory is needed
        return sides

    def _number(self, split: str, sides: Sides, chunks: Sequence[CleanedChunk], path: Path) -> None:
        """Write the store of a split; UserError (65) if no pair of a corpus is left."""
        texts, counted = self.texts[split], self.counted[split]
        columns = {name: file.path for name, file in texts[0].columns.items()}
        number = Numbering(self.data, sides, columns, limited=split == "train").number
        hashes = list[NDArray[np.uint64]]()

        def parts(pool: WorkerPool) -> Iterator[Pairs]:
            numbered = in_order(pool, number, chunks)
            sizes = [chunk.pairs for chunk in chunks]
            for pairs, of_chunk, counts in track(numbered, f"segmenting {split}", sizes):
                counted.pairs.update(counts)
                hashes.append(of_chunk)
                yield pairs

        names, tagged = [text.corpus for text in texts], [bool(text.tag) for text in texts]
        first = [text.before + 1 for text in texts]
        corpora = Corpora(names, first, tagged) if texts[0].corpus else None
        dtype = id_type(*(len(side.vocabulary) for side in sides))
        with self._pool(split, number) as pool:  # first, so that workers have no file to write
            write_pairs(path, parts(pool), dtype, columns_of(self.data), corpora)
        self.hashes[split] = np.concatenate(hashes)
        for name in names:
            if not counted.pairs[name, report.KEPT, "pairs"]:
                where = f"corpora.{name}" if name else f"name={self.data.name}"
                why = report.say_why_dropped(counted.pairs, name)
                problem = f"no pair of the {split} text is left; {why}"
                raise UserError(f"data.{where}: {problem}", Exit.DATA)

    def _hold_out(self, whole: Path, directory: Path, number: int) -> None:
        """Divide pairs that training would keep: `number` of them, evenly spread, are the dev text.

        None of these is in the training text, wherever it occurs. Writes both stores. Raises
        UserError (65) if too few pairs are left.
        """
        store, key = PairStore(whole), f"data.dev_lines={number}"
        if 2 * number > len(store):
            kept = f"{len(store)} pairs of the training text are kept"
            raise UserError(f"{key}: {kept}; hold out half of them at most", Exit.DATA)
        train, dev, hashes = self.counted["train"], self.counted["dev"], self.hashes["train"]
        chosen = np.arange(number) * len(store) // number
        is_held = np.isin(hashes, hashes[chosen])
        if is_held.all():
            raise UserError(f"{key}: all other pairs are repetitions", Exit.DATA)
        for measure, count in report.count_rows(store, np.flatnonzero(is_held)).items():
            train.pairs["", report.KEPT, measure] -= count
            train.pairs["", report.HELD_OUT, measure] += count
        for measure, count in report.count_rows(store, chosen).items():
            dev.pairs["", report.KEPT, measure] = count
        self.hashes = {"train": hashes[~is_held], "dev": hashes[chosen]}
        for split, rows in (("train", np.flatnonzero(~is_held)), ("dev", chosen)):
            blocks = np.array_split(rows, -(-len(rows) // BLOCK))
            write_pairs(directory / split, map(store.select, blocks), store.ids["source"].dtype)

    def _report(self, directory: Path, sides: Sides) -> dict[str, Any]:
        """Write the hashes of training pairs, and return what was counted of a corpus."""
        train, dev = self.hashes["train"], self.hashes["dev"]
        unique = np.unique(train)
        (directory / "train" / "hashes").write_bytes(unique.tobytes())
        stores = {split: PairStore(directory / split) for split in SPLITS}
        reports = {
            split: report.report_split(counted.pairs, counted.rejoined, stores[split])
            for split, counted in self.counted.items()
        }
        reports["train"]["duplicates"] = len(train) - len(unique)
        reports["dev"]["known"] = int(np.isin(dev, unique).sum())
        sizes = {name: len(side.vocabulary) for name, side in zip(SIDES, sides, strict=True)}
        return reports | {"vocabulary": sizes}
