"""Text in, text out: a translation for every line, in the order of the lines, window by window."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.config import WORDS, Decode, columns_of
from nmt.data.columns import Beside, check_ranges, expand, missing
from nmt.data.grouping import by_length
from nmt.data.seams import JoinedLine
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decode.beam import Hypothesis, search
from nmt.decode.beside import Columns
from nmt.decode.notes import Notes
from nmt.decode.quantised import quantised
from nmt.errors import Exit, UserError, is_want_of_memory
from nmt.modeldir import Trained
from nmt.precision import NO_BFLOAT16, bfloat16_is_faster

# What a reader could take for the end of a line or of a field: C0 and C1 controls (with TAB, LF,
# CR and NEL among them), and the two separators of Unicode.
_SEPARATORS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")


log = logging.getLogger(__name__)

LENGTH = "length"  # the column of desired lengths in pieces, for decode.target_length=given


class Translation(NamedTuple):
    """One translation of a line."""

    text: str  # holds no newline, no tab and no other control character
    score: float  # log-probability over the length penalty; 0 for an empty line


class _Source(NamedTuple):
    """A line as the model reads it."""

    ids: list[int]  # ending in EOS
    columns: dict[str, list[int]]  # as many integers as ids, or one


class Translator:
    """A trained model that turns lines into lines; what it translates needs no preparation."""

    def __init__(self, trained: Trained, decode: Decode) -> None:
        self.model = trained.model
        self.source, self.target = trained.source, trained.target
        self.longest_trained = int(trained.facts["longest_source"])
        self.decode = decode
        self.settings = trained.settings
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
        UserError (65) for a line longer than the encoding's table, unless decode.too_long=truncate,
        and for columns that do not fit the text, before any line of its window is translated; (2)
        for a column that is missing or unknown.
        """
        beside = Columns(columns or {}, self._per(columns or {}))
        lines, notes = iter(lines), Notes() if notes is None else notes
        while window := list(islice(lines, self.decode.window)):
            rows = beside.read(len(window), first)
            sources = [
                self._source(line, row, number, notes)
                for number, (line, row) in enumerate(zip(window, rows, strict=True), first)
            ]
            yield from self._window(sources, first, n_best, notes)
            first += len(window)
        beside.end(first - 1)
        notes.report(self.longest_trained, self.model.source_limit)

    def _per(self, given: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Whether each column has integers per word or per sentence."""
        wanted = self.model.columns | ({LENGTH} if self.decode.target_length == "given" else set())
        if absent := missing(wanted, given):
            raise UserError(
                f"column {absent[0]}: this model reads it beside the text; "
                f"give --columns {','.join(f'{name}=FILE' for name in absent)}"
            )
        known = columns_of(self.settings.data) if given else {}
        known.pop(WORDS, None)
        if self.decode.target_length == "given":
            known[LENGTH] = "sentence"
        if odd := sorted(set(given) - set(known)):
            raise UserError(
                f"column {odd[0]}: unknown to this model; its corpus had "
                f"{', '.join(known) or 'none'}"
            )
        return known

    def _source(self, line: str, beside: dict[str, Beside], number: int, notes: Notes) -> _Source:
        """A line and its columns in numbers, eos included."""
        known = isinstance(line, JoinedLine)  # its sentences, which any copy would forget
        text = line if known else line.removesuffix("\n").removesuffix("\r")
        ids = self._ids(text, number, notes)
        words = WORDS in self.model.columns
        if not beside and not words:
            return _Source(ids, {})
        found = expand(
            text, beside, self.source.segmenter, f"line {number}", most=len(ids) - 1, words=words
        )
        check_ranges(found, self.model.column_ranges, f"line {number}")
        return _Source(ids, found)

    def _ids(self, text: str, number: int, notes: Notes) -> list[int]:
        """The ids of a line, eos included; checks its length against table and training."""
        ids = self.source.ids(text)
        pieces, limit = len(ids) - 1, self.model.source_limit
        if limit is not None and pieces + 1 > limit:
            if self.decode.too_long == "refuse":
                raise UserError(
                    f"line {number}: {pieces} pieces, but this model's encoding ends after "
                    f"{limit - 1}; split the line, or cut it by decode.too_long=truncate",
                    Exit.DATA,
                )
            notes.truncated.add(number, pieces)
            return [*ids[: limit - 1], EOS]
        if pieces > self.longest_trained:
            notes.long.add(number, pieces)
        return ids

    def _window(
        self, sources: list[_Source], first: int, n_best: int, notes: Notes
    ) -> list[list[Translation]]:
        """Translate the sources in batches of like length; the answers are in their order."""
        answers = [[Translation("", 0.0)] for _ in sources]
        places = [place for place, source in enumerate(sources) if len(source.ids) > 1]
        lengths = [len(sources[place].ids) for place in places]
        for group in by_length(lengths, self.decode.batch_tokens // self.decode.beam_size):
            batch = [places[i] for i in group]
            found = self._search([sources[place] for place in batch], n_best)
            for place, hypotheses in zip(batch, found, strict=True):
                answers[place] = [self._translation(hypothesis) for hypothesis in hypotheses]
                best, limit = hypotheses[0], self._limit(sources[place])
                if not best.finished:
                    note = notes.cut if len(best.ids) == limit else notes.broken
                    note.add(first + place, len(best.ids))
        return answers

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        text = self.target.text(hypothesis.ids).translate(_SEPARATORS)
        return Translation(text, hypothesis.score)

    def _limit(self, source: _Source) -> int:
        """Pieces that the translation of a source may have, eos apart."""
        pieces = len(source.ids) - 1
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        table = self.model.target_limit  # bos, or eos, and the pieces
        return limit if table is None else min(limit, table - 1)

    @torch.inference_mode()
    def _search(self, sources: list[_Source], n_best: int) -> list[list[Hypothesis]]:
        """Search for the translations of one batch of sources."""
        source = self._padded([source.ids for source in sources])  # [batch, source]
        columns = {  # [batch, source] each, or [batch, 1]
            name: self._padded([source.columns[name] for source in sources])
            for name in sources[0].columns
        }
        limits = torch.tensor([self._limit(source) for source in sources])
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
                    bos=BOS,
                    eos=EOS,
                    forbidden=(PAD, BOS, UNK),
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

    def _lengths(self, sources: list[_Source], columns: dict[str, Tensor]) -> Tensor | None:
        """Desired lengths [batch], eos included; None: nobody asks, or the model's head tells."""
        if not self.model.needs_lengths or self.decode.target_length == "predicted":
            return None
        if self.decode.target_length == "given":
            return columns.pop(LENGTH)[:, 0].clamp(min=0) + 1
        pieces = [len(source.ids) - 1 for source in sources]
        wanted = [max(1, round(self.decode.length_ratio * n)) + 1 for n in pieces]
        return torch.tensor(wanted, device=self.device)

    def _padded(self, rows: list[list[int]]) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=PAD).to(self.device)
