"""The steps of a preparation: clean, learn, number, store.

Several processes clean and number chunks of lines. The words of a chunk are in a file between the
two passes, so that the slow tokenizer runs once.
"""

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data, Segmentation, columns_of
from nmt.corpus import report
from nmt.corpus.learn import learn_bpe_sides, learn_unigram_sides
from nmt.corpus.pairs import HASHES, LINES, SIDES, Corpora, Pairs, id_type, read_pairs, write_pairs
from nmt.corpus.report import Counts
from nmt.corpus.scan import SPLITS, Chunk, ParallelText
from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.system.pool import WorkerPool, in_order
from nmt.system.progress import track
from nmt.system.resources import cores
from nmt.text.columns import ColumnLine, expand
from nmt.text.lines import decode_utf8
from nmt.text.protection import Protection, tokenizers_of
from nmt.text.side import Sides

log = logging.getLogger(__name__)
FEW_LINES = 30_000  # that one process prepares sooner than several
BLOCK = 2**16  # pairs that are copied at a time
DROP_HINT = "mend the file, or set data.invalid_utf8=drop"

WordCounts = list[Counter[str]]  # of both sides


class CleanedPair(NamedTuple):
    """A pair, as the second pass reads it."""

    line: int  # its number
    hash: int  # equal for equal pairs, whatever their tags
    words: list[str]  # of each side, separated by single spaces
    raw: str  # source before it is tokenised, if there are columns: they go by its words
    columns: list[str]  # its line of each


class CleanedChunk(NamedTuple):
    """A cleaned chunk, whose pairs are in a file."""

    text: ParallelText
    path: Path
    pairs: int
    full: int  # of the pairs: those with words on both sides

    def read(self) -> Iterator[CleanedPair]:
        return starmap(CleanedPair, json.loads(self.path.read_bytes()))


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
        self.data, self.segmenter, self.texts = data, segmenter, texts
        self.sides = sides or ()
        self.tokenizers = [side.segmenter.tokenizer for side in self.sides]
        self.tokenizers = self.tokenizers or tokenizers_of(data, segmenter)
        self.protection = Protection(self.tokenizers[0])
        self.learns_bpe = sides is None and segmenter.kind == "bpe"  # from counts of words
        self.words: WordCounts = [Counter() for _ in SIDES]
        self.counts: dict[str, Counts] = {split: Counter() for split in SPLITS}
        self.hashes = dict[str, NDArray[np.uint64]]()  # by split [pair]
        sizes = [size for text in texts["train"] for size in text.sizes()]
        self.lines = sum(sizes)
        usual = 1 if self.lines < FEW_LINES else min(cores(), len(sizes))
        self.workers = data.workers or usual

    def write(self, directory: Path) -> dict[str, Any]:
        """Fill a directory; returns a report of each split, and the sizes of the vocabularies."""
        started, number = time.monotonic(), self.data.dev_lines
        several = f" with {self.workers} processes" if self.workers > 1 else ""
        log.info("preparing %s lines%s", f"{self.lines:,}", several)
        splits = [split for split in SPLITS if self.texts[split]]
        with TemporaryDirectory(dir=directory) as work:
            self.work = Path(work)
            chunks = {split: self.clean(split) for split in splits}
            self.sides = self.sides or self._learn(chunks["train"])
            for name, side in zip(SIDES, self.sides, strict=True):
                (directory / f"{name}.json").write_bytes(manifest.dump(side.to_json()))
            stores = self.work / "whole" if number else directory
            for split in splits:
                self.number(split, chunks[split], stores / split)
            if number:
                self._hold_out(stores / "train", directory, number)
        log.info("prepared in %.0f s", time.monotonic() - started)
        return self._report(directory)

    def clean(self, split: str) -> list[CleanedChunk]:
        """The first pass over a split."""
        cleaned: list[CleanedChunk] = []
        with self._pool(split, self._clean_chunk) as pool:
            for text in self.texts[split]:
                chunks = in_order(pool, self._clean_chunk, text.chunks())
                title = f"tokenising {text.corpus or split}"
                for chunk, counts, words in track(chunks, title, text.sizes()):
                    cleaned.append(chunk)
                    self.counts[split].update(counts)
                    for total, counted in zip(self.words, words, strict=False):
                        total.update(counted)
        return cleaned

    def number(self, split: str, chunks: Sequence[CleanedChunk], path: Path) -> None:
        """The second pass: store a split; UserError (65) if a corpus has no pair left."""
        texts, counts = self.texts[split], self.counts[split]
        hashes = list[NDArray[np.uint64]]()

        def parts(pool: WorkerPool) -> Iterator[Pairs]:
            numbered = in_order(pool, self._number_chunk, chunks)
            sizes = [chunk.pairs for chunk in chunks]
            for pairs, chunk_hashes, outcomes in track(numbered, f"segmenting {split}", sizes):
                counts.update(outcomes)
                hashes.append(chunk_hashes)
                yield pairs

        names, tagged = [text.corpus for text in texts], [bool(text.tag) for text in texts]
        first = [text.offset + 1 for text in texts]
        corpora = Corpora(names, first, tagged) if texts[0].corpus else None
        dtype = id_type(*(len(side.vocabulary) for side in self.sides))
        with self._pool(split, self._number_chunk) as pool:  # before there are files to inherit
            write_pairs(path, parts(pool), dtype, columns_of(self.data), corpora)
        self.hashes[split] = np.concatenate(hashes)
        for name in names:
            if not counts[name, report.KEPT, "pairs"]:
                where = f"corpora.{name}" if name else f"name={self.data.name}"
                why = report.say_why_dropped(counts, name)
                problem = f"no pair of the {split} text is left; {why}"
                raise UserError(f"data.{where}: {problem}", Exit.DATA)

    def _pool(self, split: str, function: Callable[..., Any]) -> WorkerPool:
        """Workers that inherit a method and its data by the fork.

        One process prepares the development text: it has few lines, and each worker would have to
        segment all their words.
        """
        count = self.workers if split == "train" else 1
        return WorkerPool(count, "data.workers", f"set data.workers below {count}", [function])

    def _clean_chunk(self, chunk: Chunk) -> tuple[CleanedChunk, Counts, WordCounts]:
        """Decode, normalise and tokenise; UserError (65) at text that is not UTF-8.

        Also returns counts of dropped pairs and, to learn BPE from, of words.
        """
        text, counts, pairs = chunk.text, Counts(), list[CleanedPair]()
        for number, (source, target, *columns) in enumerate(chunk.rows(), start=chunk.first):
            if max(len(source), len(target)) > self.data.max_line_bytes:
                counts[text.corpus, report.TOO_MANY_BYTES, "pairs"] += 1
                continue
            try:
                pair = self.protection.protect_pair(
                    decode_utf8(source, f"{text.source.path}:{number}", DROP_HINT),
                    decode_utf8(target, f"{text.target.path}:{number}", DROP_HINT),
                )
            except UserError:
                if self.data.invalid_utf8 == "fail":
                    raise
                counts[text.corpus, report.INVALID, "pairs"] += 1
                continue
            words = [t.tokenize(side) for t, side in zip(self.tokenizers, pair, strict=True)]
            words[0] = _remove_tag(words[0], text.tag)
            hashed = hash_pair(words[0], words[1], self.tokenizers[0].symbols)
            if text.tag and words[0]:
                words[0] = f"{text.tag} {words[0]}"
            integers = [column.decode(errors="replace") for column in columns]
            raw = pair[0] if columns else ""
            pairs.append(CleanedPair(text.offset + number, hashed, words, raw, integers))
        with NamedTemporaryFile(dir=self.work, delete=False) as file:
            file.write(json.dumps(pairs, ensure_ascii=False).encode())
        full = [pair.words for pair in pairs if all(pair.words)]
        counted: WordCounts = []
        if self.learns_bpe and text.split == "train":  # at once: faster than line by line
            counted = [Counter(" ".join(side).split()) for side in zip(*full, strict=True)]
        return CleanedChunk(text, Path(file.name), len(pairs), len(full)), counts, counted

    def _learn(self, chunks: Sequence[CleanedChunk]) -> Sides:
        """Learn segmenters and vocabularies from the pairs with words on both sides."""
        if self.learns_bpe:
            sides = learn_bpe_sides(self.segmenter, self.tokenizers, self.words)
            self.words.clear()  # its memory is needed
            return sides
        total = sum(chunk.full for chunk in chunks)
        chosen = min(self.segmenter.training_lines or total, total)

        def lines(side: int) -> Iterator[str]:
            pairs = (pair.words for chunk in chunks for pair in chunk.read())
            for seen, words in enumerate(filter(all, pairs)):
                if (seen + 1) * chosen // total > seen * chosen // total:  # evenly spread
                    yield words[side]

        return learn_unigram_sides(self.segmenter, self.tokenizers, [lines(0), lines(1)])

    def _number_chunk(self, chunk: CleanedChunk) -> tuple[Pairs, NDArray[np.uint64], Counts]:
        """Segment words and number the pieces: kept pairs, their hashes [pair], and counts."""
        counts, lines, hashes = Counts(), list[int](), list[int]()
        rows: dict[str, list[list[int]]] = {side: [] for side in SIDES}
        columns: dict[str, list[int]] = {name: [] for name in columns_of(self.data)}
        for pair in chunk.read():
            ids = [
                side.vocabulary.ids(side.segmenter.segment(words))
                for side, words in zip(self.sides, pair.words, strict=True)
            ]
            lengths = [len(side_ids) - 1 for side_ids in ids]
            outcome = self._decide(lengths, chunk.text.split)
            for measure, number in zip(report.MEASURES, (1, *lengths), strict=True):
                counts[chunk.text.corpus, outcome, measure] += number
            if outcome != report.KEPT:
                continue
            lines.append(pair.line)
            hashes.append(pair.hash)
            for name, side_ids in zip(SIDES, ids, strict=True):
                rows[name].append(side_ids)
            for name, values in self._expand_columns(chunk.text, pair).items():
                columns[name] += values
        arrays = {name: np.array(values, np.int32) for name, values in columns.items()}
        numbers, dtype = np.array(lines, LINES), np.dtype(np.uint32)
        pairs = Pairs.of_rows(numbers, rows, dtype, columns_of(self.data), arrays)
        return pairs, np.array(hashes, HASHES), counts

    def _decide(self, lengths: Sequence[int], split: str) -> str:
        """Whether to keep a pair of so many pieces, or why not; long development pairs stay."""
        longer, shorter = max(lengths), min(lengths)
        if not shorter:
            return report.EMPTY
        if split == "train" and longer > self.data.max_length:
            return report.TOO_LONG
        if split == "train" and self.data.max_ratio and longer > self.data.max_ratio * shorter:
            return report.UNLIKE
        return report.KEPT

    def _expand_columns(self, text: ParallelText, pair: CleanedPair) -> dict[str, list[int]]:
        """The columns of a pair; UserError (65) if a line does not fit its text."""
        if not text.columns:
            return {}
        per = columns_of(self.data)
        lines = {
            name: ColumnLine(per[name], integers, f"{file.path}:{pair.line}")
            for (name, file), integers in zip(text.columns.items(), pair.columns, strict=True)
        }
        where = next(iter(lines.values())).where
        return expand(pair.raw, lines, self.sides[0].segmenter, where)

    def _hold_out(self, whole: Path, directory: Path, number: int) -> None:
        """Divide pairs that training would keep: `number` of them, evenly spread, are the dev text.

        None of these is in the training text, wherever it occurs. Writes both stores. Raises
        UserError (65) if too few pairs are left.
        """
        store, key = read_pairs(whole), f"data.dev_lines={number}"
        if 2 * number > len(store):
            kept = f"{len(store)} pairs of the training text are kept"
            raise UserError(f"{key}: {kept}; hold out half of them at most", Exit.DATA)
        train, dev, hashes = self.counts["train"], self.counts["dev"], self.hashes["train"]
        chosen = np.arange(number) * len(store) // number
        is_held = np.isin(hashes, hashes[chosen])
        if is_held.all():
            raise UserError(f"{key}: all other pairs are repetitions", Exit.DATA)
        for measure, count in report.count_rows(store, np.flatnonzero(is_held)).items():
            train["", report.KEPT, measure] -= count
            train["", report.HELD_OUT, measure] += count
        for measure, count in report.count_rows(store, chosen).items():
            dev["", report.KEPT, measure] = count
        self.hashes = {"train": hashes[~is_held], "dev": hashes[chosen]}
        for split, rows in (("train", np.flatnonzero(~is_held)), ("dev", chosen)):
            blocks = np.array_split(rows, -(-len(rows) // BLOCK))
            write_pairs(directory / split, map(store.select, blocks), store.ids["source"].dtype)

    def _report(self, directory: Path) -> dict[str, Any]:
        """Write the hashes of training pairs, and return what was counted of a corpus."""
        train, dev = self.hashes["train"], self.hashes["dev"]
        unique = np.unique(train)
        (directory / "train" / "hashes").write_bytes(unique.tobytes())
        reports = {
            split: report.report_split(counts, read_pairs(directory / split))
            for split, counts in self.counts.items()
        }
        reports["train"]["duplicates"] = len(train) - len(unique)
        reports["dev"]["known"] = int(np.isin(dev, unique).sum())
        sizes = {name: len(side.vocabulary) for name, side in zip(SIDES, self.sides, strict=True)}
        return reports | {"vocabulary": sizes}


def _remove_tag(line: str, tag: str) -> str:
    """Remove a tag that the text begins with, as it would be there twice."""
    first, _, rest = line.partition(" ")
    return rest if tag and first == tag else line


def hash_pair(source: str, target: str, symbols: Collection[str]) -> int:
    """Hash the words of a pair, without a symbol as a tag before the source, to 64 bits."""
    first, _, rest = source.partition(" ")
    pair = f"{rest if first in symbols else source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")
