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
from nmt.corpus.pairs import SIDES, Corpora, PairStore, Writer, id_type
from nmt.corpus.passes import CleanedChunk, CleanedText, Cleaning, Numbering
from nmt.corpus.report import Tally
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

    tallies: dict[str, Tally]  # by corpus; the name is empty if there is but one
    changes: dict[str, Counter[str]]  # by side: lines and characters that were changed
    hashes: NDArray[np.uint64]  # [pair]
    unknown: NDArray[np.bool_]  # [side, pair] whether all pieces are unknown


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
            cleaned = {
                split: self._clean(split, tokenizers, Path(work, split))
                for split in SPLITS
                if self.texts[split]
            }
            sides = self._learn(tokenizers, cleaned["train"])
            self.words.clear()  # its memory is needed
            for name, side in zip(SIDES, sides, strict=True):
                (directory / f"{name}.json").write_bytes(manifest.dump(side.to_json()))
            places = {split: directory / split for split in SPLITS}
            if number := self.data.dev_lines:
                places["train"] = Path(work, "whole")
            counted = {s: self._number(s, sides, cleaned[s], places[s]) for s in cleaned}
            if number:
                counted = hold_out(places["train"], directory, counted["train"], number)
        unique = np.unique(counted["train"].hashes)
        (directory / "train" / "hashes").write_bytes(unique.tobytes())
        log.info("prepared in %.0f s", time.monotonic() - started)
        stores = {split: PairStore(directory / split) for split in SPLITS}
        reports = {
            split: report.split_report(of.tallies, of.changes, of.unknown, stores[split])
            for split, of in counted.items()
        }
        reports["train"]["duplicates"] = len(counted["train"].hashes) - len(unique)
        reports["dev"]["known"] = int(np.isin(counted["dev"].hashes, unique).sum())
        reports["dev"] |= report.count_symbols(stores["train"], stores["dev"], sides[0])
        sizes_of = {name: len(side.vocabulary) for name, side in zip(SIDES, sides, strict=True)}
        return reports | {"vocabulary": sizes_of}

    def _pool(self, split: str, function: Callable[..., Any]) -> WorkerPool:
        """Return workers that have a function, and what it needs, by the fork.

        The development text has few lines, and each worker would have to segment all their words.
        """
        count = self.workers if split == "train" else 1
        return WorkerPool(count, "data.workers", f"set data.workers below {count}", [function])

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
                chunks = in_order(pool, clean, text.chunks())
                for chunk in track(chunks, f"tokenising {text.corpus or split}", text.sizes()):
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

        def full_pairs() -> Iterator[tuple[str, str]]:
            texts = (CleanedText.read(chunk.path) for chunk in chunks)
            return filter(all, (pair for text in texts for pair in zip(*text.words, strict=True)))

        total = sum(chunk.full for chunk in chunks)
        return learn_unigram_sides(self.segmenter, tokenizers, full_pairs, total)

    def _number(
        self, split: str, sides: Sides, cleaned: Sequence[CleanedChunk], place: Path
    ) -> Counted:
        """Write the store of a split."""
        texts = self.texts[split]
        tallies = {text.corpus: report.no_tally() for text in texts}
        first, tagged = [text.before + 1 for text in texts], [bool(text.tag) for text in texts]
        corpora = Corpora(list(tallies), first, tagged) if texts[0].corpus else None
        columns = {name: file.path for name, file in texts[0].columns.items()}
        number = Numbering(self.data, sides, columns, limited=split == "train").number
        changes: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        hashes, unknown = list[NDArray[np.uint64]](), list[NDArray[np.bool_]]()
        dtype = id_type(*(len(side.vocabulary) for side in sides))
        with (
            self._pool(split, number) as pool,  # first, so that workers have no file to write
            Writer(place, dtype, columns_of(self.data), corpora) as writer,
        ):
            numbered = in_order(pool, number, [chunk.path for chunk in cleaned])
            parts = track(numbered, f"segmenting {split}", [chunk.pairs for chunk in cleaned])
            for chunk, part in zip(cleaned, parts, strict=True):
                for side, ids, lengths in zip(SIDES, part.ids, part.lengths, strict=True):
                    writer.add(side, ids, lengths)
                for name, values in part.columns.items():
                    writer.add_column(name, np.array(values))
                writer.add_lines(part.lines)
                tallies[chunk.corpus] += chunk.tally + part.tally
                for side, counts in zip(SIDES, chunk.changes, strict=True):
                    changes[side].update(counts)
                hashes.append(part.hashes)
                unknown.append(part.unknown)
        for name, tally in tallies.items():
            if not tally[report.KEPT, 0]:
                where = f"corpora.{name}" if name else f"name={self.data.name}"
                raise UserError(
                    f"data.{where}: no pair of the {split} text is left; "
                    f"{report.most_dropped(tally)}",
                    Exit.DATA,
                )
        return Counted(tallies, changes, np.concatenate(hashes), np.hstack(unknown))


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
    held = np.flatnonzero(is_held)
    for split, rows in (("train", np.flatnonzero(~is_held)), ("dev", chosen)):
        if not len(rows):
            raise UserError(f"data.dev_lines={number}: all other pairs are repetitions", Exit.DATA)
        with Writer(directory / split, store.ids["source"].dtype) as writer:
            for block in np.array_split(rows, -(-len(rows) // BLOCK)):
                pairs = store.select(block)
                for side in SIDES:
                    writer.add(side, pairs.ids[side], np.diff(pairs.offsets[side]))
                writer.add_lines(pairs.lines)
    kept, moved = (report.tally_rows(store, held, what) for what in (report.KEPT, report.HELD))
    dev_tally = report.tally_rows(store, chosen, report.KEPT)
    tallies = {name: tally - kept + moved for name, tally in counted.tallies.items()}
    train, dev = (
        counted._replace(tallies=of_rows, hashes=hashes[rows], unknown=counted.unknown[:, rows])
        for of_rows, rows in ((tallies, ~is_held), ({"": dev_tally}, chosen))
    )
    return {"train": train, "dev": dev._replace(changes={side: Counter() for side in SIDES})}
