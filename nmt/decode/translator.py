"""Text in, text out: a translation for every line, in the order of the lines, window by window."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.config import Decode
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.decode.batching import by_length
from nmt.decode.beam import Hypothesis, search
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained

log = logging.getLogger(__name__)

# What a reader could take for the end of a line or of a field: C0 and C1 controls (with TAB, LF,
# CR and NEL among them), and the two separators of Unicode.
_SEPARATORS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")


class Translation(NamedTuple):
    """One translation of a line."""

    text: str  # holds no newline, no tab and no other control character
    score: float  # log-probability over the length penalty; 0 for an empty line


class Translator:
    """A trained model that turns lines into lines; what it translates needs no preparation."""

    def __init__(self, trained: Trained, decode: Decode) -> None:
        self.model = trained.model
        self.source, self.target = trained.source, trained.target
        self.longest_trained = int(trained.facts["longest_source"])
        self.decode = decode
        self.device = next(trained.model.parameters()).device

    def texts(self, lines: Iterable[str]) -> list[str]:
        """The best translation of each line."""
        return [translations[0].text for translations in self.translate(lines)]

    def translate(self, lines: Iterable[str], n_best: int = 1) -> Iterator[list[Translation]]:
        """For each line its n_best translations (at most beam_size), best first.

        Reads decode.window lines, gives back as many, and only then reads on. An empty line has
        one empty translation. What was unusual is counted, and logged once after the last line.
        Raises UserError (65) for a line longer than the encoding's table, unless
        decode.too_long=truncate, before any line of its window is translated.
        """
        lines, first, notes = iter(lines), 1, _Notes()
        while window := list(islice(lines, self.decode.window)):
            sources = [self._ids(line, number, notes) for number, line in enumerate(window, first)]
            yield from self._window(sources, first, n_best, notes)
            first += len(window)
        self._report(notes)

    def _ids(self, line: str, number: int, notes: "_Notes") -> list[int]:
        """The ids of a line, eos included; checks its length against table and training."""
        ids = self.source.ids(line.removesuffix("\n").removesuffix("\r"))
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
        self, sources: list[list[int]], first: int, n_best: int, notes: "_Notes"
    ) -> list[list[Translation]]:
        """Translate the sources in batches of like length; the answers are in their order."""
        answers = [[Translation("", 0.0)] for _ in sources]
        places = [place for place, ids in enumerate(sources) if len(ids) > 1]
        lengths = [len(sources[place]) for place in places]
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

    def _limit(self, source: list[int]) -> int:
        """Pieces that the translation of a source may have, eos apart."""
        pieces = len(source) - 1
        limit = int(self.decode.max_length_ratio * pieces) + self.decode.max_length_offset
        table = self.model.target_limit  # bos, or eos, and the pieces
        return limit if table is None else min(limit, table - 1)

    @torch.inference_mode()
    def _search(self, sources: list[list[int]], n_best: int) -> list[list[Hypothesis]]:
        """Search for the translations of one batch of sources."""
        rows = [torch.tensor(ids) for ids in sources]
        source = pad_sequence(rows, batch_first=True, padding_value=PAD)  # [batch, source]
        limits = torch.tensor([self._limit(ids) for ids in sources])
        try:
            state = self.model.start(source.to(self.device))

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
        except torch.OutOfMemoryError:
            raise UserError(
                f"decode.batch_tokens={self.decode.batch_tokens}: too much for the memory of "
                f"{self.device}; give a smaller one",
                Exit.NO_MEMORY,
            ) from None

    def _report(self, notes: "_Notes") -> None:
        """Log what was unusual, one line for each kind."""
        if notes.long.count:
            log.warning(
                "sources of more pieces than the longest in training (%d): %s; "
                "translated whole; quality beyond the trained length is not assured",
                self.longest_trained,
                notes.long,
            )
        if notes.truncated.count:
            log.warning(
                "sources cut to the %d pieces that the encoding holds: %s",
                (self.model.source_limit or 0) - 1,
                notes.truncated,
            )
        if notes.cut.count:
            log.warning(
                "translations cut at the limit of their length: %s; the limit is set by "
                "decode.max_length_ratio and decode.max_length_offset",
                notes.cut,
            )
        if notes.broken.count:
            log.warning(
                "translations that end where the model gave no finite score: %s", notes.broken
            )


@dataclass
class _Note:
    """How many lines something befell."""

    count: int = 0
    first: int = 0
    longest: int = 0

    def add(self, line: int, pieces: int) -> None:
        self.first = min(self.first, line) if self.count else line
        self.count += 1
        self.longest = max(self.longest, pieces)

    def __str__(self) -> str:
        return f"{self.count} (first: line {self.first}; longest: {self.longest} pieces)"


class _Notes:
    """What is reported after the last line."""

    def __init__(self) -> None:
        self.long = _Note()  # source beyond the trained length
        self.truncated = _Note()  # source beyond the table
        self.cut = _Note()  # output at its limit
        self.broken = _Note()  # output that met no finite score
