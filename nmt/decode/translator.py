"""Text in, text out: a translation for every line, in the order of the lines, window by window."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.config import WORDS, Decode
from nmt.data.columns import ColumnLine
from nmt.data.grouping import by_length
from nmt.data.seams import JoinedLine
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decode import source_limit
from nmt.decode.beam import Hypothesis, length_penalty, search
from nmt.decode.columns import Columns
from nmt.decode.notes import Notes
from nmt.decode.parts import parts_of
from nmt.decode.quantised import quantised
from nmt.decode.source_limit import ALWAYS, GIANT
from nmt.decode.sources import LENGTH, Source, SourceReader
from nmt.errors import Exit, UserError, is_want_of_memory
from nmt.memory import memory_of
from nmt.model import example
from nmt.modeldir import Trained
from nmt.precision import NO_BFLOAT16, bfloat16_is_faster

# What a reader could take for the end of a line or of a field: C0 and C1 controls (with TAB, LF,
# CR and NEL among them), and the two separators of Unicode.
_SEPARATORS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")

FORBIDDEN = {"forbid": (PAD, BOS, UNK), "allow": (PAD, BOS)}  # decode.unknown -> ids

log = logging.getLogger(__name__)


class Translation(NamedTuple):
    """One translation of a line."""

    text: str  # holds no newline, no tab and no other control character
    score: float  # log-probability over the length penalty; 0 for an empty line
    ids: tuple[int, ...] = ()  # of its pieces, eos apart; those of parts one after the other
    finished: bool = True  # false: it, or a part, ends without eos


class RefusedLinesError(UserError):
    """Some lines were too long, and were left empty; all others are translated."""


class Translator:
    """A trained model that turns lines into lines; what it translates needs no preparation."""

    def __init__(self, trained: Trained, decode: Decode) -> None:
        self.model = trained.model
        self.source, self.target = trained.source, trained.target
        self.longest_trained = int(trained.facts["longest_source"])
        self.decode = decode
        self.reader = SourceReader(trained, given_lengths=decode.target_length == "given")
        self._room: int | None = None  # pieces of the longest source, once it was measured
        self._check_length(decode)
        if decode.position_scale != 1:
            self._scale_positions(decode.position_scale)
        self.device = next(trained.model.parameters()).device
        self._choose_precision(decode.precision)

    def _check_length(self, decode: Decode) -> None:
        """Refuse a way to the desired length that this model cannot go."""
        if decode.target_length == "predicted" and self.model.length_head is None:
            raise UserError(
                "decode.target_length=predicted: this model cannot tell a length; train one with "
                "model.length_head=true"
            )
        if decode.target_length == "given" and not self.model.needs_lengths:
            raise UserError(
                "decode.target_length=given: no encoding of this model asks for a length; train "
                "one with encoding=ldpe or encoding=lrpe"
            )

    def _choose_precision(self, precision: str) -> None:
        """Take a number format; float32, with a warning, where that is faster on this CPU.

        Raises UserError for what the device cannot.
        """
        if precision == "int8":
            self.model = quantised(self.model)
        self.bfloat16 = precision == "bfloat16"
        if not self.bfloat16:
            return
        if self.device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
            raise UserError(
                f"decode.precision=bfloat16: {self.device} has no units for it; choose float32"
            )
        if self.device.type == "cpu" and not bfloat16_is_faster():
            log.warning(NO_BFLOAT16, "decode")
            self.bfloat16 = False

    def _scale_positions(self, factor: float) -> None:
        try:
            for site in self.model.sites.values():
                site.scale_positions(factor)
        except ValueError as error:
            raise UserError(f"decode.position_scale={factor}: {error}") from None

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
        first: int = 1,
        notes: Notes | None = None,
    ) -> Iterator[list[Translation]]:
        """For each line its n_best translations (at most beam_size), best first.

        `columns` are the integers beside the text that the model asks for, line by line as in
        their files. `first` and `notes` are the number of the first line, and what was unusual
        about those before it. Reads decode.window lines of each, gives back as many, and only then
        reads on. An empty line has one empty translation; a JoinedLine is read as the pieces of its
        sentences. What was unusual is counted, and logged once after the last line. Raises
        UserError (65) for columns that do not fit the text, before any line of its window is
        translated; (2) for a column that is missing or unknown; after the last line
        RefusedLinesError, if lines were too long and decode.too_long=refuse.
        """
        beside = Columns(columns or {}, self.reader.kinds(columns or {}))
        lines, notes = iter(lines), Notes() if notes is None else notes
        while window := list(islice(lines, self.decode.window)):
            rows = beside.read(len(window), first)
            sources = [
                self._parts(line, row, number, notes)
                for number, (line, row) in enumerate(zip(window, rows, strict=True), first)
            ]
            yield from self._window(sources, first, n_best, notes)
            first += len(window)
        beside.end(first - 1)
        longest = self._longest(notes.too_long)
        notes.report(self.longest_trained, longest)
        if notes.refused.count:
            raise RefusedLinesError(
                f"sources of more pieces than model and memory hold ({longest}), their lines left "
                f"empty: {notes.refused}; split them, or choose decode.too_long=split",
                Exit.DATA,
            )

    def _parts(
        self, line: str, beside: dict[str, ColumnLine], number: int, notes: Notes
    ) -> list[Source]:
        """A line and its columns in numbers: one source, several if it was split, none if refused.

        What stands beside the words of a line cannot be split: such a line is refused.
        """
        known = isinstance(line, JoinedLine)  # its sentences, which any copy would forget
        text = line if known else line.removesuffix("\n").removesuffix("\r")
        ids = self.source.ids(text)
        pieces, where = len(ids) - 1, f"line {number}"
        longest = self._longest(pieces)
        if pieces <= longest:
            if pieces > self.longest_trained:
                notes.long.add(number, pieces)
            return [self.reader.read(text, ids, beside, where)]
        if self.decode.too_long == "truncate":
            notes.truncated.add(number, pieces)
            return [self.reader.read(text, [*ids[:longest], EOS], beside, where)]
        if self.decode.too_long == "refuse" or beside or self.model.columns - {WORDS}:
            notes.refused.add(number, pieces)
            return []
        notes.split.add(number, pieces)
        most = max(1, min(longest, self.longest_trained))
        parts = parts_of(text, most, lambda part: len(self.source.ids(part)) - 1)
        made = ((part, [*self.source.ids(part)[:-1][:most], EOS]) for part in parts)
        return [self.reader.read(part, part_ids, {}, where) for part, part_ids in made]

    def _longest(self, pieces: int) -> int:
        """The most pieces that a source may have, if one of so many is to be judged."""
        table = self.model.source_limit
        longest = GIANT if table is None else min(GIANT, table - 1)
        if pieces <= ALWAYS or longest <= ALWAYS:
            return longest
        if self._room is None:
            self._room = source_limit.longest(self._try, self._limit, memory_of(self.device))
        return min(longest, self._room)

    def _try(self, length: int, steps: int) -> None:
        """Search for a translation of so many pieces of a made-up source of this length, eos in."""
        source = example.ids(1, length, len(self.source.vocabulary))
        columns = example.columns(self.model.columns, source)
        rows = {name: column[0].tolist() for name, column in columns.items()}
        if self.decode.target_length == "given":
            rows[LENGTH] = [steps]
        table = self.model.target_limit
        steps = steps if table is None else min(steps, table - 1)
        self._search([Source(source[0].tolist(), rows)], [steps], 1, eos=-1)

    def _window(
        self, lines: list[list[Source]], first: int, n_best: int, notes: Notes
    ) -> list[list[Translation]]:
        """Translate lines, or the parts of long ones, in batches; answer in their order."""
        sources = [source for parts in lines for source in parts]
        numbers = [number for number, parts in enumerate(lines, first) for _ in parts]
        of_sources: list[list[Hypothesis]] = [[] for _ in sources]
        places = [place for place, source in enumerate(sources) if len(source.ids) > 1]
        lengths = [len(sources[place].ids) for place in places]
        for group in by_length(lengths, self.decode.batch_tokens // self.decode.beam_size):
            batch = [places[i] for i in group]
            limits = [self._limit(len(sources[place].ids) - 1) for place in batch]
            made = self._search([sources[place] for place in batch], limits, n_best)
            for place, limit, hypotheses in zip(batch, limits, made, strict=True):
                of_sources[place] = hypotheses
                best = hypotheses[0]
                if not best.finished:
                    note = notes.cut if len(best.ids) == limit else notes.broken
                    note.add(numbers[place], len(best.ids))
        answers, rest = [], iter(of_sources)
        for parts in lines:
            translated = [hypotheses for _ in parts if (hypotheses := next(rest))]
            answers.append(self._joined(translated) if translated else [Translation("", 0.0)])
        return answers

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
            penalty = length_penalty(length, self.decode.alpha, self.decode.length_penalty)
            score = log_prob / penalty
            ids = tuple(number for each in one_of_each for number in each.ids)
            made.append(Translation(text, score, ids, all(each.finished for each in one_of_each)))
        return made

    def _text(self, hypothesis: Hypothesis) -> str:
        return self.target.text(hypothesis.ids).translate(_SEPARATORS)

    def _limit(self, pieces: int) -> int:
        """Pieces that the translation of so many may have; eos counts in neither."""
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        table = self.model.target_limit  # bos, or eos, and the pieces
        return limit if table is None else min(limit, table - 1)

    @torch.inference_mode()
    def _search(
        self, sources: list[Source], most: list[int], n_best: int, eos: int = EOS
    ) -> list[list[Hypothesis]]:
        """Search for the translations of one batch of sources."""
        source = self._padded([source.ids for source in sources])  # [batch, source]
        columns = {  # [batch, source] each, or [batch, 1]
            name: self._padded([source.columns[name] for source in sources])
            for name in sources[0].columns
        }
        limits = torch.tensor(most)
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
                state = self.model.start(source, columns, self._lengths(sources, columns))

                def step(tokens: Tensor, parents: Tensor | None) -> Tensor:
                    if parents is not None:
                        state.reorder(parents)
                    return self.model.step(tokens, state).float().log_softmax(dim=-1)

                return search(
                    step,
                    limits.to(self.device),
                    beam_size=self.decode.beam_size,
                    alpha=self.decode.alpha,
                    penalised=self.decode.length_penalty,
                    bos=BOS,
                    eos=eos,
                    forbidden=FORBIDDEN[self.decode.unknown],
                    n_best=n_best,
                )
        except (RuntimeError, MemoryError) as error:
            if not is_want_of_memory(error):
                raise
            raise UserError(
                f"decode.batch_tokens={self.decode.batch_tokens}: too much for the memory of "
                f"{self.device}; give a smaller one",
                Exit.NO_MEMORY,
            ) from None

    def _lengths(self, sources: list[Source], columns: dict[str, Tensor]) -> Tensor | None:
        """Desired lengths [batch], eos included; None: nobody asks, or the model's head tells."""
        if not self.model.needs_lengths or self.decode.target_length == "predicted":
            return None
        if self.decode.target_length == "given":
            return columns.pop(LENGTH)[:, 0].clamp(min=0) + 1
        pieces = [len(source.ids) - 1 for source in sources]
        lengths = [max(1, round(self.decode.length_ratio * n)) + 1 for n in pieces]
        return torch.tensor(lengths, device=self.device)

    def _padded(self, rows: list[list[int]]) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=PAD).to(self.device)
