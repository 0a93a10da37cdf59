"""Text in, text out: a translation for every line, in the order of the lines, window by window."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Protocol

from nmt.config import WORDS, Decode, Settings
from nmt.data.columns import ColumnLine
from nmt.data.grouping import by_length
from nmt.data.seams import JoinedLine
from nmt.data.side import Side
from nmt.data.vocab import EOS
from nmt.decode.beam import Hypothesis, length_penalty
from nmt.decode.columns import Columns
from nmt.decode.engine import Engine
from nmt.decode.ensemble import together
from nmt.decode.mbr import by_utility
from nmt.decode.notes import Notes
from nmt.decode.parts import parts_of
from nmt.decode.prefixes import Prefixes
from nmt.decode.source_limit import ALWAYS, GIANT
from nmt.decode.sources import Source, SourceReader
from nmt.decode.torch_engine import TorchEngine
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained

# What a reader could take for the end of a line or of a field: C0 and C1 controls (with TAB, LF,
# CR and NEL among them), and the two separators of Unicode.
_SEPARATORS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")


class Translation(NamedTuple):
    """One translation of a line."""

    text: str  # holds no newline, no tab and no other control character
    score: float  # see `Translator.translate`; 0 for an empty line
    ids: tuple[int, ...] = ()  # of its pieces, eos apart; those of parts one after the other
    finished: bool = True  # false: it, or a part, ends without eos


class RefusedLinesError(UserError):
    """Some lines were too long, and were left empty; all others are translated."""


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
        """`longest_source` is the pieces of the longest source in training."""


class Translator:
    """An engine that turns lines into lines; what it translates needs no preparation."""

    def __init__(self, sides: TextSides, decode: Decode, engine: Engine) -> None:
        self.source, self.target, self.engine = sides.source, sides.target, engine
        self.longest_trained = int(sides.facts["longest_source"])
        self.decode = decode
        self.reader = SourceReader(
            sides.source.segmenter,
            sides.settings,
            engine,
            given_lengths=decode.target_length == "given",
        )
        self._room: dict[int, int] = {}  # hypotheses -> pieces of the longest source, once measured

    @classmethod
    def of(cls, trained: Trained, decode: Decode, *others: Trained) -> "Translator":
        """That of a trained model, or with `others` of an ensemble.

        Raises UserError for settings that a model or its device cannot follow, and for models that
        do not share their vocabularies.
        """
        members = [trained, *others]
        return cls(together(members), decode, TorchEngine(members, decode))

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
    ) -> Iterator[list[Translation]]:
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
        and only then reads on. An empty line has one empty translation; a JoinedLine is read as the
        pieces of its sentences. What was unusual is counted, and logged once after the last line.
        Raises UserError (65) for columns and prefixes that do not fit, before any line of their
        window is translated; (2) for a column that is missing or unknown; after the last line
        RefusedLinesError, if lines were too long and decode.too_long=refuse, or with a prefix.
        """
        beside = Columns(columns or {}, self.reader.kinds(columns or {}))
        count = self.decode.mbr or n_best  # hypotheses that are searched for
        beginnings = Prefixes(prefixes, self.target)
        lines, notes = iter(lines), Notes() if notes is None else notes
        while window := list(islice(lines, self.decode.window)):
            rows = beside.read(len(window), first)
            begin = beginnings.read(len(window), first)
            sources = [
                self._begun(self._parts(line, row, bool(ids), number, count, notes), ids, number)
                for number, (line, row, ids) in enumerate(
                    zip(window, rows, begin, strict=True), first
                )
            ]
            for answer in self._window(sources, count, notes):
                yield answer[:n_best]
            first += len(window)
        beside.end(first - 1)
        beginnings.end(first - 1)
        longest = self._longest(notes.too_long, count)
        notes.report(self.longest_trained, longest)
        if notes.refused.count:
            advice = "split them, or choose decode.too_long=split"
            if self.decode.too_long == "split":
                advice = "split them and what stands beside them: columns, or target prefixes"
            raise RefusedLinesError(
                f"sources of more pieces than model and memory hold ({longest}), their lines left "
                f"empty: {notes.refused}; {advice}",
                Exit.DATA,
            )

    def _parts(
        self,
        line: str,
        beside: dict[str, ColumnLine],
        whole: bool,
        number: int,
        count: int,
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
        longest = self._longest(pieces, count)
        if pieces <= longest:
            if pieces > self.longest_trained:
                notes.long.add(number, pieces)
            return [self.reader.read(text, ids, beside, number)]
        if self.decode.too_long == "truncate":
            notes.truncated.add(number, pieces)
            return [self.reader.read(text, [*ids[:longest], EOS], beside, number)]
        if self.decode.too_long == "refuse" or whole or beside or self.engine.columns - {WORDS}:
            notes.refused.add(number, pieces)
            return []
        notes.split.add(number, pieces)
        most = max(1, min(longest, self.longest_trained))
        parts = parts_of(text, most, lambda part: len(self.source.ids(part)) - 1)
        made = ((part, [*self.source.ids(part)[:-1][:most], EOS]) for part in parts)
        return [
            self.reader.read(part, of_part, {}, number, i) for i, (part, of_part) in enumerate(made)
        ]

    def _begun(self, parts: list[Source], prefix: list[int], number: int) -> list[Source]:
        """The same sources, whose outputs begin with a prefix; UserError (65) if that cannot be."""
        if not prefix or not parts:
            return parts
        (source,) = parts  # a line with a prefix is not split
        pieces = len(source.ids) - 1
        if not pieces:
            raise UserError(
                f"target prefix, line {number}: the line of the text is empty, and so will its "
                "translation be; empty this line, too",
                Exit.DATA,
            )
        if len(prefix) > (limit := self._limit(pieces)):
            raise UserError(
                f"target prefix, line {number}: has {len(prefix)} pieces, but the translation may "
                f"have {limit}; shorten it, or raise decode.max_length_offset",
                Exit.DATA,
            )
        return [source._replace(prefix=prefix)]

    def _longest(self, pieces: int, count: int) -> int:
        """The most pieces that a source may have, if one of so many is to be judged."""
        table = self.engine.source_limit
        longest = GIANT if table is None else min(GIANT, table - 1)
        if pieces <= ALWAYS or longest <= ALWAYS:
            return longest
        if count not in self._room:
            self._room[count] = self.engine.room(self._limit, count)
        return min(longest, self._room[count])

    def _window(
        self, lines: list[list[Source]], count: int, notes: Notes
    ) -> list[list[Translation]]:
        """Translate lines, or the parts of long ones, in batches; answer in their order."""
        sources = [source for parts in lines for source in parts]
        of_sources: list[list[Hypothesis]] = [[] for _ in sources]
        places = [place for place, source in enumerate(sources) if len(source.ids) > 1]
        lengths = [len(sources[place].ids) for place in places]
        for group in by_length(lengths, self.decode.batch_tokens // self.decode.width(count)):
            batch = [places[i] for i in group]
            limits = [self._limit(len(sources[place].ids) - 1) for place in batch]
            made = self.engine.search([sources[place] for place in batch], limits, count)
            for place, hypotheses in zip(batch, made, strict=True):
                of_sources[place] = hypotheses
        found = iter(zip(sources, of_sources, strict=True))
        return [self._answer(list(islice(found, len(parts))), notes) for parts in lines]

    def _answer(
        self, parts: list[tuple[Source, list[Hypothesis]]], notes: Notes
    ) -> list[Translation]:
        """The translations of a line, best first, from the hypotheses of its parts."""
        parts = [(source, hypotheses) for source, hypotheses in parts if hypotheses]
        if not parts:
            return [Translation("", 0.0)]
        made, best = self._joined([hypotheses for _, hypotheses in parts]), 0
        if self.decode.mbr:
            choices = by_utility([translation.text for translation in made])
            made, best = [made[i]._replace(score=u) for i, u in choices], choices[0].place
        for source, hypotheses in parts:
            if not (one := hypotheses[best]).finished:
                at_limit = len(one.ids) == self._limit(len(source.ids) - 1)
                (notes.cut if at_limit else notes.broken).add(source.line, len(one.ids))
        return made

    def _joined(self, parts: list[list[Hypothesis]]) -> list[Translation]:
        """The translations of a line, from those of its parts, all best first."""
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
