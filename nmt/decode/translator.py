"""Text in, text out: a translation for every line, in the order of the lines, window by window."""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol

from nmt.config import WORDS, Decode, Settings
from nmt.data.columns import ColumnLine
from nmt.data.marian import language_codes
from nmt.data.segmenter import JoinedLine
from nmt.data.side import Side
from nmt.data.vocab import EOS
from nmt.decode.beam import length_penalty
from nmt.decode.columns import Columns
from nmt.decode.engine import Engine, SearchRequest
from nmt.decode.ensemble import together
from nmt.decode.mbr import by_utility
from nmt.decode.notes import Notes
from nmt.decode.parts import parts_of
from nmt.decode.prefixes import Prefixes, UnfitPrefixError
from nmt.decode.search import Hypothesis
from nmt.decode.searching import Searching, batches_of
from nmt.decode.sources import Source, SourceReader
from nmt.decode.torch_engine import TorchEngine
from nmt.errors import Exit, UserError
from nmt.modeldir import USUAL_LENGTH, Trained

SMALLEST = 4000  # source tokens x hypotheses of a batch; half of it costs a core a fifth to a third

# What a reader could take for the end of a line or of a field: C0 and C1 controls (with TAB, LF,
# CR and NEL among them), and the two separators of Unicode.
_SEPARATORS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")


class Translation(NamedTuple):
    """One translation of a line."""

    text: str  # holds no newline, no tab and no other control character
    score: float  # see `Translator.translate`; 0 for an empty line
    ids: tuple[int, ...] = ()  # of its pieces, eos apart; those of parts one after the other
    finished: bool = True  # false: it, or a part, ends without eos


log = logging.getLogger(__name__)


class RefusedLinesError(UserError):
    """Some lines, too long or with an unfit prefix, were left empty; all others are translated."""


def _unfit(notes: Notes) -> list[str]:
    """What to say of prefixes with which no translation can begin, if there were any."""
    if not notes.unfit.count:
        return []
    return [
        "target prefixes with which no translation can begin, their lines left empty: "
        f"{notes.unfit.count} (first: line {notes.unfit.first}); change or empty them"
    ]


class TextSides(Protocol):
    """What a translator knows of a model apart from its engine; a modeldir.Trained is one."""

    @property
    def settings(self) -> Settings:
        """Of the training; here those of its data."""

    @property
    def source(self) -> Side:
        """Segmenter and vocabulary of the lines that are read."""

    @property
    def target(self) -> Side:
        """Those of the lines that are written."""

    @property
    def facts(self) -> dict[str, Any]:
        """`longest_source` is the pieces of the longest source in training; None: unknown."""


_Searched = tuple[Source, list[Hypothesis]]  # a source, and what was found for it


class _Window(NamedTuple):
    """Lines that are translated together, each as its sources: one, several parts, or none."""

    lines: list[list[Source]]
    notes: Notes  # of them


class Translator:
    """An engine that turns lines into lines; what it translates needs no preparation."""

    def __init__(
        self, sides: TextSides, decode: Decode, engine: Engine, workers: int | None = 1
    ) -> None:
        """`workers`: processes that search; None: as many as pay for the text and this machine."""
        self.source, self.target, self.engine = sides.source, sides.target, engine
        self.longest_trained: int | None = sides.facts["longest_source"]
        self.codes = language_codes(sides.source.segmenter, sides.source.vocabulary)
        self.decode, self.workers = decode, workers
        self.reader = SourceReader(
            sides.source.segmenter,
            sides.settings,
            engine,
            given_lengths=decode.target_length == "given",
        )

    @classmethod
    def of(
        cls, trained: Trained, decode: Decode, *others: Trained, workers: int | None = 1
    ) -> "Translator":
        """That of a trained model, or with `others` of an ensemble.

        Raises UserError for settings that a model or its device cannot follow, and for models that
        do not share their vocabularies.
        """
        members = [trained, *others]
        return cls(together(members), decode, TorchEngine(members, decode), workers)

    def texts(
        self, lines: Iterable[str], columns: Mapping[str, Iterable[str]] | None = None
    ) -> list[str]:
        """The best translation of each line."""
        return [translations[0].text for translations in self.translate(lines, 1, columns)]

    def translate(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        columns: Mapping[str, Iterable[str]] | None = None,
        *,
        prefixes: Iterable[str] | None = None,
        first: int = 1,
        notes: Notes | None = None,
        read_ahead: bool = False,
        more: Callable[[], bool] = lambda: True,
    ) -> Generator[list[Translation], None, None]:
        """For each line its n_best translations (at most beam_size), best first.

        Their score is the log-probability over the length penalty. With decode.method=sample they
        are n_best samples in the order in which they were drawn, and the score is the
        log-probability: which, follows from decode.seed, the number of the line and that of the
        sample alone. With decode.mbr they are the n_best of its candidates by expected utility,
        which is the score.

        `columns` are the integers beside the text that the model asks for, line by line as in
        their files. `prefixes` are the beginnings that the translations must have, line by line; an
        empty one leaves a line free. `first` and `notes` are the number of the first line, and what
        was unusual about those before it. Reads decode.window lines of each, gives back as many,
        and only then reads on; fewer where `more` says that none is there by now. An empty line
        has one empty translation; a JoinedLine is read as the pieces of its sentences. What was
        unusual is counted, and logged once after the last line.
        Raises UserError (65) for columns that do not fit, and for columns and prefixes of fewer or
        more lines, before any line of their window is translated; (2) for a column that is missing
        or unknown; after the last line RefusedLinesError, if lines were too long and
        decode.too_long=refuse, or with a prefix, and if no translation can begin with a prefix.
        """
        beside = Columns(columns or {}, self.reader.kinds(columns or {}))
        count = self.decode.mbr or n_best  # hypotheses that are searched for
        beginnings = Prefixes(prefixes, self.target)
        notes = Notes() if notes is None else notes
        with Searching(self.engine, self.workers) as searching:
            some = self._lines_of_windows(iter(lines), first, more)
            windows = self._windows(some, beside, beginnings, first)
            begin = partial(self._begin, count, searching)
            for answers, unusual in searching.in_order(windows, begin, read_ahead):
                notes.merge(unusual)
                for answer in answers:
                    yield answer[:n_best]
        notes.report(self.longest_trained, self.longest, list(self.codes))
        if why := [*self._too_long(notes), *_unfit(notes)]:
            raise RefusedLinesError("; ".join(why), Exit.DATA)

    def _too_long(self, notes: Notes) -> list[str]:
        """What to say of sources that were too long, if there were any."""
        if not notes.refused.count:
            return []
        advice = "split them, or choose decode.too_long=split"
        if self.decode.too_long == "split":
            advice = "split them and what stands beside them: columns, or target prefixes"
        return [
            f"sources of more than {self.longest} pieces (decode.max_source, position table), "
            f"their lines left empty: {notes.refused}; {advice}"
        ]

    def _lines_of_windows(
        self, lines: Iterator[str], first: int, more: Callable[[], bool]
    ) -> Iterator[list[str]]:
        """Lines by window; a multiple of decode.window ends one, as outputs are resumed there."""
        window: list[str] = []
        for number, line in enumerate(lines, first):
            window.append(line)
            if number % self.decode.window == 0 or not more():
                yield window
                window = []
        if window:
            yield window

    def _windows(
        self,
        lines: Iterator[list[str]],
        beside: Columns,
        beginnings: Prefixes,
        first: int,
    ) -> Iterator[_Window]:
        """Read what stands beside all lines, and number them, window by window."""
        unfit = False  # whether a prefix was
        for window in lines:
            rows = beside.read(len(window), first)
            begin = beginnings.read(len(window), first)
            notes, sources = Notes(), []
            for number, (line, row, text) in enumerate(
                zip(window, rows, begin, strict=True), first
            ):
                try:
                    ids = beginnings.ids(text, number)
                    parts = self._parts(line, row, bool(ids), number, notes)
                    sources.append(self._begun(parts, ids, number))
                except UnfitPrefixError as error:
                    if not unfit:
                        log.warning("%s; its line is left empty", error)
                    unfit = True
                    notes.unfit.add(number, 0)
                    sources.append([])
            yield _Window(sources, notes)
            first += len(window)
        beside.end(first - 1)
        beginnings.end(first - 1)

    def _parts(
        self,
        line: str,
        beside: dict[str, ColumnLine],
        whole: bool,
        number: int,
        notes: Notes,
    ) -> list[Source]:
        """A line and its columns in numbers: one source, several if it was split, none if refused.

        What stands beside the words of a line cannot be split, nor what must be `whole`: such a
        line is refused.
        """
        known = isinstance(line, JoinedLine)  # its sentences, which any copy would forget
        text = line if known else line.removesuffix("\n").removesuffix("\r")
        ids = self.source.ids(text)
        pieces = len(ids) - 1
        if self.codes and pieces and ids[0] not in self.codes.values():
            notes.uncoded.add(number, pieces)
        longest = self.longest
        if pieces <= longest:
            if self.longest_trained is not None and pieces > self.longest_trained:
                notes.long.add(number, pieces)
            return [self.reader.read(text, ids, beside, number)]
        if self.decode.too_long == "truncate":
            notes.truncated.add(number, pieces)
            return [self.reader.read(text, [*ids[:longest], EOS], beside, number)]
        if self.decode.too_long == "refuse" or whole or beside or self.engine.columns - {WORDS}:
            notes.refused.add(number, pieces)
            return []
        notes.split.add(number, pieces)
        most = max(1, min(longest, self.longest_trained or USUAL_LENGTH))
        parts = parts_of(text, most, lambda part: len(self.source.ids(part)) - 1)
        made = ((part, [*self.source.ids(part)[:-1][:most], EOS]) for part in parts)
        return [
            self.reader.read(part, of_part, {}, number, i) for i, (part, of_part) in enumerate(made)
        ]

    def _begun(self, parts: list[Source], prefix: list[int], number: int) -> list[Source]:
        """The same sources, whose outputs begin with a prefix; UnfitPrefixError if none can."""
        if not prefix or not parts:
            return parts
        (source,) = parts  # a line with a prefix is not split
        pieces = len(source.ids) - 1
        if not pieces:
            raise UnfitPrefixError(
                number, "the line of the text is empty, and so is its translation; empty both"
            )
        if len(prefix) > (limit := self._limit(pieces)):
            raise UnfitPrefixError(
                number,
                f"has {len(prefix)} pieces, but the translation may have {limit}; shorten it, or "
                "raise decode.max_length_offset",
            )
        return [source._replace(prefix=prefix)]

    @property
    def longest(self) -> int:
        """The most pieces that a source may have, eos apart."""
        table, most = self.engine.source_limit, self.decode.max_source
        return most if table is None else min(most, table - 1)

    def _begin(
        self, count: int, searching: Searching, window: _Window
    ) -> Callable[[], tuple[list[list[Translation]], Notes]]:
        """Begin to search for the translations of a window, batch by batch."""
        sources = [source for parts in window.lines for source in parts]
        places = [place for place, source in enumerate(sources) if len(source.ids) > 1]
        width = self.decode.width(count)
        groups = batches_of(
            [len(sources[place].ids) for place in places],
            *(self.decode.batch_tokens // width, max(1, SMALLEST // width), self.engine.shares),
        )
        batches = [[places[i] for i in group] for group in groups]
        searching.start(len(batches))
        found = []
        for batch in batches:
            some = [sources[place] for place in batch]
            limits = [self._limit(len(source.ids) - 1) for source in some]
            request = SearchRequest(some, limits, count)
            found.append(searching.submit(self.engine.search, request))
        return partial(self._end, window, batches, found, searching)

    def _end(
        self,
        window: _Window,
        batches: list[list[int]],
        found: list[Future[list[list[Hypothesis]]]],
        searching: Searching,
    ) -> tuple[list[list[Translation]], Notes]:
        """The translations of a window, in the order of its lines, and what was unusual."""
        of_sources: list[list[Hypothesis]] = [[] for _ in range(sum(map(len, window.lines)))]
        for batch, made in zip(batches, found, strict=True):
            for place, hypotheses in zip(batch, made.result(), strict=True):
                of_sources[place] = hypotheses
        each = iter(of_sources)
        lines = [
            [(source, some) for source, some in zip(parts, each, strict=False) if some]
            for parts in window.lines
        ]
        return self._answers(lines, searching, window.notes), window.notes

    def _answers(
        self, lines: list[list[_Searched]], searching: Searching, notes: Notes
    ) -> list[list[Translation]]:
        """The translations of each line, best first, from the hypotheses of its parts."""
        every = [self._joined([hypotheses for _, hypotheses in parts]) for parts in lines]
        best = [0] * len(lines)
        if self.decode.mbr:
            ranks = {
                i: searching.submit(by_utility, [translation.text for translation in made])
                for i, made in enumerate(every)
                if lines[i]
            }
            for i, rank in ranks.items():
                made, choices = every[i], rank.result()
                every[i] = [made[place]._replace(score=utility) for place, utility in choices]
                best[i] = choices[0].place
        for parts, i in zip(lines, best, strict=True):
            for source, hypotheses in parts:
                if not (one := hypotheses[i]).finished:
                    at_limit = len(one.ids) == self._limit(len(source.ids) - 1)
                    (notes.cut if at_limit else notes.broken).add(source.line, len(one.ids))
        return every

    def _joined(self, parts: list[list[Hypothesis]]) -> list[Translation]:
        """The translations of a line, from those of its parts, all best first; empty of none."""
        if not parts:
            return [Translation("", 0.0)]
        if len(parts) == 1:
            return [
                Translation(self._text(each), each.score, tuple(each.ids), each.finished)
                for each in parts[0]
            ]
        made = []
        for one_of_each in zip(*parts, strict=False):
            length = sum(len(each.ids) + each.finished for each in one_of_each)
            log_prob = sum(each.log_prob for each in one_of_each)
            text = " ".join(filter(None, map(self._text, one_of_each)))
            score = log_prob / self._penalty(length)
            ids = tuple(number for each in one_of_each for number in each.ids)
            made.append(Translation(text, score, ids, all(each.finished for each in one_of_each)))
        return made

    def _penalty(self, length: int) -> float:
        """What the score of so many pieces is divided by; nothing for samples."""
        if self.decode.method == "sample":
            return 1.0
        return length_penalty(length, self.decode.alpha, self.decode.length_penalty)

    def _text(self, hypothesis: Hypothesis) -> str:
        return self.target.text(hypothesis.ids).translate(_SEPARATORS)

    def _limit(self, pieces: int) -> int:
        """Pieces that the translation of so many may have; eos counts in neither."""
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        table = self.engine.target_limit  # bos, or eos, and the pieces
        return limit if table is None else min(limit, table - 1)
