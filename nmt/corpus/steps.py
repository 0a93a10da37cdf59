"""The steps of a preparation: clean, learn, number, store."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nmt.config.data import Data, Segmentation, columns_of
from nmt.corpus.clean import CleanedChunk, Cleaning
from nmt.corpus.learn import learn_bpe_sides, learn_unigram_sides
from nmt.corpus.number import Numbering
from nmt.corpus.pairs import SIDES, Corpora, Writer, id_type, write_json
from nmt.corpus.report import KEPT, most_dropped, no_tally, split_report
from nmt.corpus.scan import SPLITS, ParallelText
from nmt.errors import Exit, UserError
from nmt.machine.cpus import cores
from nmt.machine.pool import InProcess, WorkerPool, executor, in_order
from nmt.machine.progress import shown
from nmt.text.protection import tokenizers_of
from nmt.text.side import Sides
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import UNK

log = logging.getLogger(__name__)
FEW_LINES = 30_000  # that one process prepares sooner than several


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
        self.words: list[Counter[str]] = [Counter(), Counter()]  # by side, of the training text
        self.directory, self.workers = Path(), 1

    def write(self, directory: Path) -> dict[str, Any]:
        """Fill a directory; returns a report of each split, and the sizes of the vocabularies."""
        started = time.monotonic()
        self.directory = directory
        tokenizers = self._tokenizers()
        sizes = [size for text in self.texts["train"] for size in text.sizes()]
        few = sum(sizes) < FEW_LINES
        self.workers = self.data.workers or (1 if few else min(cores(), len(sizes)))
        several = f" with {self.workers} processes" if self.workers > 1 else ""
        log.info("preparing %s lines%s", f"{sum(sizes):,}", several)
        with TemporaryDirectory(dir=directory) as work:
            cleaned = {split: self._clean(split, tokenizers, Path(work, split)) for split in SPLITS}
            sides = self._learn(tokenizers, cleaned["train"])
            self.words.clear()  # its memory is needed
            for name, side in zip(SIDES, sides, strict=True):
                write_json(directory / f"{name}.json", side.to_json())
            counted: dict[str, Any] = {
                split: self._number(split, sides, cleaned[split]) for split in SPLITS
            }
        log.info("prepared in %.0f s", time.monotonic() - started)
        sizes_of = {name: len(side.vocabulary) for name, side in zip(SIDES, sides, strict=True)}
        return counted | {"vocabulary": sizes_of}

    def _pool(self, split: str, function: Callable[..., Any]) -> InProcess | WorkerPool:
        """Return workers that have a function, and what it needs, by the fork.

        The development text has few lines, and each worker would have to segment all their words.
        """
        count = self.workers if split == "train" else 1
        return executor(count, "data.workers", f"set data.workers below {count}", [function])

    def _tokenizers(self) -> list[Tokenizer]:
        """Return those of both sides; UserError for an imported segmenter without its model."""
        choice = self.segmenter
        if self.sides is not None:
            return [side.segmenter.tokenizer for side in self.sides]
        if choice.kind == "imported":
            raise UserError(
                "segmenter.kind=imported: comes with a model that was imported; give its directory "
                "as trainer.init_from"
            )
        return tokenizers_of(self.data, choice.tokenizer)

    def _clean(
        self, split: str, tokenizers: Sequence[Tokenizer], directory: Path
    ) -> list[CleanedChunk]:
        """Clean a split; returns its chunks, without the words, which are counted."""
        directory.mkdir()
        counts = self.counts_words and split == "train"
        clean = Cleaning(self.data, tokenizers, counts, directory).clean
        cleaned: list[CleanedChunk] = []
        with self._pool(split, clean) as pool:
            for text in self.texts[split]:
                chunks = in_order(pool, clean, text.verified())
                for chunk in shown(chunks, f"tokenising {text.corpus or split}", text.sizes()):
                    for total, words in zip(self.words, chunk.words, strict=True):
                        total.update(words)
                    cleaned.append(chunk._replace(words=(Counter(), Counter())))
        return cleaned

    def _learn(self, tokenizers: Sequence[Tokenizer], chunks: Sequence[CleanedChunk]) -> Sides:
        """Return the sides, learned from the training text unless they are given."""
        if self.sides is not None:
            return self.sides
        if self.segmenter.kind == "bpe":
            return learn_bpe_sides(self.segmenter, tokenizers, self.words)
        assert self.segmenter.kind == "unigram", "others have sides"
        return learn_unigram_sides(self.segmenter, tokenizers, chunks)

    def _number(self, split: str, sides: Sides, cleaned: Sequence[CleanedChunk]) -> dict[str, Any]:
        """Write the store of a split; returns its report."""
        texts = self.texts[split]
        tallies = {text.corpus: no_tally() for text in texts}
        first, tagged = [text.before + 1 for text in texts], [bool(text.tag) for text in texts]
        corpora = Corpora(list(tallies), first, tagged) if texts[0].corpus else None
        columns = {name: file.path for name, file in texts[0].columns.items()}
        number = Numbering(self.data, sides, columns, limited=split == "train").number
        unknown = np.zeros(len(SIDES), np.int64)
        longest, hashes = np.zeros(len(SIDES), np.int64), []
        changes: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        dtype = id_type(*(len(side.vocabulary) for side in sides))
        per = columns_of(self.data)
        with (
            self._pool(split, number) as pool,  # first, so that workers have no file to write
            Writer(self.directory / split, dtype, per, corpora) as writer,
        ):
            numbered = in_order(pool, number, [chunk.path for chunk in cleaned])
            parts = shown(numbered, f"segmenting {split}", [chunk.pairs for chunk in cleaned])
            for chunk, part in zip(cleaned, parts, strict=True):
                for side, ids, lengths in zip(SIDES, part.ids, part.lengths, strict=True):
                    writer.add(side, ids, lengths)
                for name, values in part.columns.items():
                    writer.add_column(name, np.array(values))
                writer.add_lines(part.lines)
                tallies[chunk.corpus] += chunk.tally + part.tally
                for side, counts in zip(SIDES, chunk.changes, strict=True):
                    changes[side].update(counts)
                unknown += [np.count_nonzero(ids == UNK) for ids in part.ids]
                hashes.append(part.hashes)
                longest = np.maximum(longest, [b.max(initial=1) - 1 for b in part.lengths])
        for name, tally in tallies.items():
            if not tally[:, KEPT, 0].sum():
                where = f"corpora.{name}" if name else f"name={self.data.name}"
                raise UserError(
                    f"data.{where}: no pair of the {split} text is left; {most_dropped(tally)}",
                    Exit.DATA,
                )
        counted = split_report(tallies, changes, unknown)
        counted["longest"] = dict(zip(SIDES, longest.tolist(), strict=True))
        pairs = np.concatenate(hashes)
        counted["duplicates"] = len(pairs) - len(np.unique(pairs))
        return counted
