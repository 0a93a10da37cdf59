"""Text in, text out: a translation for every line, in the order of the lines, window by window."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nmt.config.settings import Decode
from nmt.decode.alignment import Alignment, align
from nmt.decode.engine import Engine, Hypothesis, Source, length_penalty
from nmt.decode.lines import Line, LineReader, TextSides, windows
from nmt.decode.notes import Notes
from nmt.decode.scheduler import (
    Scheduler,
    Window,
    batches_of,
    collect,
    compute_in_batches,
    submit_batches,
)
from nmt.errors import UserError
from nmt.system.pool import Executor, WorkerPool
from nmt.text.vocab import EOS

if TYPE_CHECKING:  # exported models are translated without torch
    from nmt.modeldir import Trained

# Source tokens x hypotheses; a core is a fifth to a third slower with batches of half the size.
MIN_BATCH_TOKENS = 4000

# Characters that may be read as the end of a line or field: C0 and C1 controls (TAB, LF, CR and NEL
# are among them), and the two separators of Unicode.
_SEPARATORS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")


class Translation(NamedTuple):
    """One translation of a line."""

    text: str  # holds no newline, no tab and no other control character
    score: float  # see `Translator.translate`; 0 for an empty line
    ids: tuple[int, ...] = ()  # of its pieces, without eos; the ids of all parts in a row
    finished: bool = True  # false: it, or a part, ends without eos
    alignment: Alignment | None = None  # if requested


class CandidateTranslation(NamedTuple):
    """A translation of a line, and the outputs of the parts of the line."""

    translation: Translation
    outputs: list[tuple[Source, Hypothesis]]

    def with_score(self, score: float) -> "CandidateTranslation":
        return self._replace(translation=self.translation._replace(score=score))

    def pairs(self) -> list[Source]:
        """The parts, each with its output as the target."""
        return [part._replace(target=[*output.ids, EOS]) for part, output in self.outputs]


class Translator:
    """Translates lines of raw text by an engine."""

    def __init__(
        self, sides: TextSides, decode: Decode, engine: Engine, workers: int | None = 1
    ) -> None:
        """`workers`: processes that search; None: as many as pay off for the text here."""
        self.source, self.target, self.engine = sides.source, sides.target, engine
        self.decode, self.workers = decode, workers
        self.reader = LineReader(sides, engine, decode)

    @classmethod
    def of(
        cls, trained: "Trained", decode: Decode, *more: "Trained", workers: int | None = 1
    ) -> "Translator":
        """Make the translator of a trained model, or with `more` models of an ensemble.

        Raises UserError for settings that a model or its device cannot follow, and for models that
        do not share their vocabularies.
        """
        from nmt.decode.models import combine
        from nmt.decode.torch_engine import TorchEngine

        members = [trained, *more]
        return cls(combine(members), decode, TorchEngine(members, decode), workers)

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
        align: bool = False,
    ) -> Generator[list[Translation], None, None]:
        """For each line its n_best translations (at most beam_size), best first.

        Their score is the log-probability over the length penalty, plus the coverage penalty. With
        decode.method=sample they are n_best samples in the order in which they were drawn, and the
        score is the log-probability; they follow from decode.seed, the number of the line and that
        of the sample alone. With decode.mbr they are the n_best of its candidates by expected
        utility, which is the score.

        `columns` are the integers that the model reads in addition to the text, line by line as
        in their files. `prefixes` are the beginnings of the translations, line by line; an empty
        one leaves a line free. `first` is the number of the first line, and `notes` are about the
        lines before it. Reads decode.window lines of each, yields as many, and only then reads on,
        unless `read_ahead`. An empty line has one empty translation. With `align`, each
        translation has its alignment.

        Raises UserError (65) for columns that do not fit, and files of fewer or more lines, before
        any line of their window is translated; (2) for a column that is missing or unknown. After
        the last line, logs what was unusual, and raises RefusedLinesError if a line was too long
        (with decode.too_long=refuse, or a prefix) or no translation can begin with its prefix.
        """
        columns, notes = columns or {}, Notes() if notes is None else notes
        if self.decode.split != "lines" and (columns or prefixes is not None):
            what = "target prefixes" if prefixes is not None else "columns"
            raise UserError(
                f"decode.split={self.decode.split}: not with {what}, which belong to whole lines; "
                "leave it at lines"
            )
        parallel = self.reader.lines(lines, columns, prefixes, "target prefixes", first)
        with Scheduler(self.engine, self.workers) as scheduler:
            read = windows(parallel, self.decode.window)
            submitted = (self._submit(n_best, scheduler, window) for window in read)
            for window in scheduler.in_order(submitted, read_ahead):
                translations = self._translations(window, n_best, align, scheduler.executor)
                notes.update(window.notes)
                yield from translations
        notes.report(self.reader.codes, self.reader.longest_trained, self.reader.longest)

    def _submit(self, n_best: int, scheduler: Scheduler, lines: Sequence[Line]) -> Window:
        """Read a window, and submit its batches."""
        notes = Notes()
        for line in lines:
            self.reader.read(line, notes)
        sources = [source for line in lines for source in line.parts]
        count = self.decode.mbr or n_best
        width = self.decode.width(count)
        groups = batches_of(
            [len(source.ids) for source in sources],
            budget=self.decode.batch_tokens // width,
            least=max(1, MIN_BATCH_TOKENS // width),
            parallel=self.engine.parallel_batches,
        )
        scheduler.start(len(groups))
        calls = submit_batches(scheduler.executor, self.engine.search, sources, groups, count)
        return Window(lines, calls, notes)

    def _translations(
        self, window: Window, n_best: int, align: bool, executor: Executor
    ) -> list[list[Translation]]:
        """The translations of each line, best first; notes unusual ones."""
        lines, results = window.lines, iter(collect(window.calls))
        by_line = [self._candidates(line, [next(results) for _ in line.parts]) for line in lines]
        if self.decode.mbr:  # also of an empty line, whose utility is its score: 0
            texts = [[c.translation.text for c in candidates] for candidates in by_line]
            rankings = [executor.submit(rank_by_utility, candidates) for candidates in texts]
            by_line = [
                [candidates[index].with_score(utility) for index, utility in ranking.result()]
                for candidates, ranking in zip(by_line, rankings, strict=True)
            ]
        for line, candidates in zip(lines, by_line, strict=True):
            self._note(line, candidates[0], window.notes)
        by_line = [candidates[:n_best] for candidates in by_line]
        if not align:
            return [[c.translation for c in candidates] for candidates in by_line]
        to_align = [
            (line.text, candidate.translation.text, candidate.pairs())
            for line, candidates in zip(lines, by_line, strict=True)
            for candidate in candidates
        ]
        alignments = self._alignments(to_align, executor)
        return [
            [c.translation._replace(alignment=next(alignments)) for c in candidates]
            for candidates in by_line
        ]

    def _note(self, line: Line, best: CandidateTranslation, notes: Notes) -> None:
        """Note outputs that did not end, and protected strings that they lack."""
        for source, hypothesis in best.outputs:
            if not hypothesis.finished:
                at_limit = len(hypothesis.ids) == source.limit
                notes.add("cut" if at_limit else "broken", line.number, len(hypothesis.ids))
            if source.protected.strings:
                lost = source.protected.count_lost(self.target.text(hypothesis.ids))
                if lost:
                    notes.add("lost", line.number, count=lost)

    def align(
        self,
        lines: Iterable[str],
        translations: Iterable[str],
        columns: Mapping[str, Iterable[str]] | None = None,
    ) -> list[Alignment]:
        """Align whole lines with their translations, a window at a time.

        Raises UserError as `translate` does, and (65) for a pair too long for tables or batches.
        """
        alignments = list[Alignment]()
        parallel = self.reader.lines(lines, columns or {}, translations)
        window, most = self.decode.window, self._most_tokens
        for pairs in self.reader.read_pairs(parallel, most, window, Notes()):
            outputs = [(line.text, line.target, line.parts) for line in pairs]
            alignments += self._alignments(outputs, WorkerPool())
        return alignments

    @property
    def _most_tokens(self) -> int:
        """The most tokens of a batch of pairs to align, on the longer side."""
        return self.decode.batch_tokens // self.decode.width(1)

    def _alignments(
        self, outputs: Sequence[tuple[str, str, list[Source]]], executor: Executor
    ) -> Iterator[Alignment]:
        """The alignment of each line, its translation, and the outputs of its parts."""
        pairs = [pair for _, _, parts in outputs for pair in parts]
        attend = self.engine.cross_attention
        weights = iter(compute_in_batches(executor, attend, pairs, self._most_tokens))
        for line, translation, pairs_of_line in outputs:
            parts = [(pair, next(weights)) for pair in pairs_of_line]
            yield align(line, translation, parts, self.source, self.target)

    def _candidates(
        self, line: Line, part_outputs: list[list[Hypothesis]]
    ) -> list[CandidateTranslation]:
        """Join the outputs of the parts of a line, best first; a line without parts stays empty."""
        if not part_outputs:
            return [CandidateTranslation(Translation("", 0.0), [])]
        decode, candidates = self.decode, list[CandidateTranslation]()
        alpha = 0.0 if decode.method == "sample" else decode.alpha
        for hypotheses in zip(*part_outputs, strict=False):  # one of each part
            length = sum(decode.pieces_before + len(h.ids) + h.finished for h in hypotheses)
            penalty = length_penalty(length, alpha, decode.length_penalty)
            score = sum(h.log_prob for h in hypotheses) / penalty
            score += sum(h.uncovered for h in hypotheses)
            texts = map(self._text, line.parts, hypotheses)
            text = self.reader.separator.join(filter(None, texts))
            ids = tuple(number for h in hypotheses for number in h.ids)
            translation = Translation(text, score, ids, all(h.finished for h in hypotheses))
            outputs = list(zip(line.parts, hypotheses, strict=True))
            candidates.append(CandidateTranslation(translation, outputs))
        return candidates

    def _text(self, source: Source, hypothesis: Hypothesis) -> str:
        text = self.target.text(hypothesis.ids)
        if self.source.protection.patterns:
            text = source.protected.restore(text)
        return text.translate(_SEPARATORS)


def rank_by_utility(candidates: Sequence[str]) -> list[tuple[int, float]]:
    """Rank candidates by expected utility (minimum Bayes risk), best first, each text once.

    Returns the index of the first candidate with a text, and its utility, from 0 to 100.
    The expectation is over the candidates themselves, each as probable as any other and a text that
    occurs twice twice as probable: over samples, an estimate without bias of the expectation under
    the model (Eikema and Aziz 2020). The utility is sacreBLEU's chrF2 (Popovic 2015).
    """
    from sacrebleu.metrics.chrf import CHRF  # takes a while

    metric, counts = CHRF(), Counter(candidates)

    def utility(text: str) -> float:
        scores = (metric.sentence_score(text, [other]).score * n for other, n in counts.items())
        return sum(scores) / len(candidates)

    choices = [(candidates.index(text), utility(text)) for text in counts]
    return sorted(choices, key=lambda choice: -choice[1])
