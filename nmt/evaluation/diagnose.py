"""What a model loses on lines longer than any that it was trained on, and what search can do.

The lines beyond the trained length are compared with those within it, and a sample of them is
translated again with other search settings. A `Row` has what is lost of some lines; `render` shows
the rows on one screen, with the commands that they propose.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.config.settings import Decode, with_decode
from nmt.decode import split
from nmt.errors import Exit, UserError
from nmt.evaluation.attention import count_unattended, draw_lines
from nmt.evaluation.lost import LOST, lost_text
from nmt.evaluation.metrics import MODEL_METRICS, REPETITION, UNATTENDED, Floats, Lines, Metric
from nmt.evaluation.notation import EMPTY, interval, number
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import Figure
from nmt.evaluation.significance import score_group
from nmt.evaluation.systems import System, SystemModel, with_search_settings
from nmt.evaluation.testsets import single_test
from nmt.evaluation.text import table, wrap
from nmt.evaluation.translations import KeptTranslation, load_single, translate_all
from nmt.exchange import ctranslate2_engine
from nmt.modeldir import USUAL_LENGTH, Trained
from nmt.text.lines import read_text

SAMPLE = 64  # lines beyond the trained length that are translated in other ways
NGRAM = 6  # pieces that no_repeat_ngram is tried with
BEAM, COVERAGE = 4, 0.2  # of coverage_penalty, which needs a beam
SHARE = 0.8  # of the usual length of a translation: what min_length_ratio is tried with
LENGTH = "length"  # characters of translations over those of the references, or sources
MEASURED = ["encoding=absolute"]  # for the others it was not measured what replacing them gives
RUNS = Path("runs")  # where nmt-train writes


class Row(NamedTuple):
    """How much of some lines is lost in translation by some search settings."""

    name: str
    lines: int
    figures: Mapping[str, Figure] = {}  # by metric; none of no lines
    overrides: Sequence[str] = ()  # of nmt-translate; none: as the model searches

    def cell(self, metric: str, form: str = "share") -> str:
        """`75.0 %`, or a ratio as `0.89`."""
        figure = self.figures.get(metric)
        return f"{number(figure.mean, form)}{' %' * (form == 'share')}" if figure else EMPTY


class Diagnosis(NamedTuple):
    """What one model loses on one text."""

    model: SystemModel
    source: Path
    reference: Path | None
    trained: int | None  # pieces of the longest source in training; None: unknown
    divided_at: int  # pieces; lines above are the long ones
    longest: int  # pieces of the longest line
    within: Row
    beyond: Row
    tried: list[Row]  # search settings on a sample of the long lines; first: as the model searches


class Text(NamedTuple):
    """Lines, and their translations."""

    sources: Lines
    references: Lines | None
    outputs: Lines

    def choose(self, lines: Sequence[int]) -> "Text":
        chosen = [None if text is None else [text[i] for i in lines] for text in self]
        return Text._make(chosen)


def list_remedies(most: int, usual: float, decode: Decode) -> dict[str, dict[str, Any]]:
    """Search settings to try, by name; `usual`: target pieces per source piece of short lines."""
    beam = {"beam_size": BEAM} if decode.beam_size < BEAM else {}
    not_too_short = {"min_length_ratio": round(min(SHARE * usual, decode.max_length_ratio), 2)}
    remedies: dict[str, dict[str, Any]] = {
        "by sentences": {"split": "sentences"},
        "in parts": {"max_source": most, "too_long": "split"},
        "not too short": not_too_short,
        "without repetitions": {"no_repeat_ngram": NGRAM},
        "both": {**not_too_short, "no_repeat_ngram": NGRAM},
        "covering the source": {**beam, "coverage_penalty": COVERAGE},
    }
    if not split.is_sentencex_installed():
        del remedies["by sentences"]
    if decode.method != "beam":
        del remedies["covering the source"]
    return remedies


def diagnose(
    system: System, source: Path, reference: Path | None, options: EvaluationOptions
) -> Diagnosis:
    """Translate a text, divide its lines at the trained length, and try what search can do.

    Raises UserError for what is not a single model of this toolkit that reads text alone (2), and
    for files without words (65), not parallel (65) or missing (66).
    """
    _check_single(system)
    sources, references = read_text(source), None
    if reference is not None:
        _, references, _ = single_test([source], [reference]).read()  # refuses what is not parallel
    if not any(line.strip() for line in sources):
        raise UserError(f"{source}: no line has text; nothing to diagnose", Exit.DATA)
    system = with_search_settings(system, options.decode)
    (model,), facts = system.models, system.facts
    assert facts is not None, "a model has facts"
    if facts.columns:
        columns = ", ".join(sorted(facts.columns))
        raise UserError(f"{model.typed}: reads {columns}; a diagnosis is of models of text alone")
    pieces = [len(facts.segmenter.encode(line)) for line in sources]
    divided_at = facts.longest or USUAL_LENGTH
    short = [i for i, n in enumerate(pieces) if n <= divided_at]
    long = [i for i, n in enumerate(pieces) if n > divided_at]
    request = KeptTranslation(system.label, model, source.name, sources, {})
    (outputs,) = translate_all([request], options)
    whole = Text(sources, references, outputs)
    trained = load_single(model, options) if references is None else None
    within = _measure(f"up to {divided_at} pieces", whole.choose(short), options, trained)
    beyond = _measure("longer", whole.choose(long), options, trained)
    lengths = facts.longest, divided_at, max(pieces)
    diagnosis = Diagnosis(model, source, reference, *lengths, within, beyond, [])
    if not long:
        return diagnosis
    read = sum(pieces[i] for i in short)
    written = sum(len(facts.target_segmenter.encode(outputs[i])) for i in short)
    remedies = list_remedies(divided_at, written / read if read else 1.0, model.settings.decode)
    sample = whole.choose(draw_lines(long, sources, options.seed, SAMPLE))
    models = [
        model._replace(settings=with_decode(model.settings, changes))
        for changes in remedies.values()
    ]
    requests = [replace(request, model=model, lines=sample.sources) for model in models]
    tried = [_measure("as the model searches", sample, options)]
    for name, lines in zip(remedies, translate_all(requests, options), strict=True):
        typed = {**options.decode, **remedies[name]}
        overrides = [f"decode.{k}={'null' if v is None else v}" for k, v in typed.items()]
        row = _measure(name, sample._replace(outputs=lines), options)
        tried.append(row._replace(overrides=overrides))
    return diagnosis._replace(tried=tried)


def _check_single(system: System) -> None:
    if system.file is not None:
        raise UserError(f"{system.file}: is a file; name the directory of a run or model")
    model = system.models[0]
    if ctranslate2_engine.is_exported(model.path):
        raise UserError(f"{model.typed}: written for CTranslate2; name the model that was exported")


def _measure(
    name: str, text: Text, options: EvaluationOptions, trained: Trained | None = None
) -> Row:
    """Measure what is lost, by references or else sources; `trained` shows attention, too."""
    sources, references, outputs = text
    if not sources:
        return Row(name, 0)
    metrics = [REPETITION, _length_over(references or sources)]
    if references is not None:
        metrics.append(lost_text(references))
    counts = {metric.name: metric.counts(outputs) for metric in metrics if metric.counts}
    if trained is not None:
        sample = draw_lines(range(len(sources)), sources, options.seed)
        counts[UNATTENDED] = count_unattended(trained, sources, outputs, sample)
        metrics.append(MODEL_METRICS[UNATTENDED])
    about = {"test": "", "group": "", "system": "", "pairs": len(sources)}
    every, bootstrap = np.arange(len(sources)), (options.samples, options.seed)
    rows = score_group(metrics, [[counts]], every, [about], *bootstrap)
    return Row(name, len(sources), {row.metric: row for row in rows})


def _length_over(texts: Lines) -> Metric:
    """The characters of translations over those of texts, without white space."""

    def count(lines: Lines) -> Floats:
        sizes = [[len("".join(line.split())) for line in side] for side in (lines, texts)]
        return np.array(sizes, np.float64).T

    return Metric(LENGTH, "", "ratio", counts=count)


# The screen

COLUMNS: dict[str, Callable[[Row], str]] = {  # one that is empty in all rows is not shown
    "lost": lambda row: row.cell(LOST.name),
    "95 %": lambda row: interval(row.figures.get(LOST.name), LOST),
    "unattended": lambda row: row.cell(UNATTENDED),
    "repeated": lambda row: row.cell(REPETITION.name),
    "length": lambda row: row.cell(LENGTH, "ratio"),
}


def render(d: Diagnosis) -> str:
    sections = {
        "1. Length": _describe_lengths(d),
        "2. What is lost": _describe_losses(d),
        f"3. Search settings, tried on {d.tried[0].lines if d.tried else 0} of the "
        f"{d.beyond.lines} long lines": _describe_tried(d),
        "4. Further training, not tried here": _suggest_training(d),
        "What this does not say": _describe_limits(d),
    }
    parts = [f"{d.model.typed} on {d.source}\n"]
    for title, texts in sections.items():
        if lines := [line for text in texts for line in text.split("\n")]:
            parts += [title, *(f"  {line}".rstrip() for line in lines), ""]
    return "\n".join(parts).rstrip() + "\n"


def _describe_lengths(d: Diagnosis) -> Iterator[str]:
    total = d.within.lines + d.beyond.lines
    trained = f"Training had sources of up to {d.trained} pieces."
    if not d.trained:
        unknown = "How long the sources of training were is not known"
        trained = f"{unknown}; {d.divided_at} pieces are taken."
    share = f"{d.beyond.lines} of {total} lines ({d.beyond.lines / total:.0%}) are longer"
    if not d.beyond.lines:
        share = f"None of the {total} lines is longer"
    yield wrap(f"{trained} {share}; the longest has {d.longest}.")


def _tabulate(rows: Sequence[Row], has_lines: bool = False) -> str:
    """A table of all rows that have lines."""
    rows = [row for row in rows if row.lines]
    columns = {"lines": lambda row: str(row.lines), **COLUMNS} if has_lines else COLUMNS
    cells = {heading: list(map(cell, rows)) for heading, cell in columns.items()}
    cells = {heading: column for heading, column in cells.items() if set(column) != {EMPTY}}
    names = [row.name for row in rows]
    return table(list(zip(names, *cells.values(), strict=True)), ["", *cells])


def _describe_losses(d: Diagnosis) -> Iterator[str]:
    yield _tabulate([d.within, d.beyond], has_lines=True)
    yield ""
    repeated = "repeated: 4-grams of words that occurred earlier in the same translation"
    if d.reference:
        yield wrap(
            "lost: character 6-grams of the references that are missing in the translations, "
            f"wrong words included; {repeated}; length: characters over those of the references."
        )
    else:
        yield wrap(
            "By attention and length alone, as there are no references. unattended: source pieces "
            f"that got almost no attention, of a sample of each row; {repeated}; length: "
            "characters over those of the source."
        )
    within, beyond = (row.figures.get(LOST.name) for row in (d.within, d.beyond))
    usual, now = (row.figures.get(LENGTH) for row in (d.within, d.beyond))
    if within and beyond:
        points = 100 * (beyond.mean - within.mean)
        apart = (beyond.low or 0) > (within.high or 0) or (beyond.high or 0) < (within.low or 0)
        overlap = "" if apart else "; the intervals overlap, so length may not be the cause"
        more = f"{abs(points):.1f} points {'more' if points >= 0 else 'less'}"
        yield wrap(f"The long lines lose {more} than the others{overlap}.")
    elif not d.reference and usual and now and usual.mean and now.mean:
        lost = 1 - now.mean / usual.mean
        how = f"{abs(lost):.0%} {'shorter' if lost > 0 else 'longer'}"
        yield wrap(f"For their sources, the long lines' translations are {how} than the others'.")


def _describe_tried(d: Diagnosis) -> Iterator[str]:
    if not d.tried:
        return
    yield _tabulate(d.tried)
    yield ""
    if lost := [(row.name, row.figures[LOST.name]) for row in d.tried if LOST.name in row.figures]:
        (_, usual), (name, least) = lost[0], min(lost, key=lambda pair: pair[1].mean)
        if least.high is None or usual.low is None or least.high >= usual.low:
            yield "No setting certainly helps: all intervals overlap with the first."
        else:
            yield f"Least is lost {name}: {100 * (usual.mean - least.mean):.1f} points less."
    for row in d.tried:
        if row.overrides:
            output = _unused(Path(f"{row.name.replace(' ', '-')}.txt"))
            words = ["nmt-translate", d.model.typed, d.source, "-o", output, *row.overrides]
            yield f"{row.name}:\n  {shlex.join(map(str, words))}"


def _suggest_training(d: Diagnosis) -> Iterator[str]:
    if not d.tried:
        return
    settings, is_run = d.model.settings, d.model.run is not None
    words = ["nmt-train", "experiment=lengthen", f"parent={d.model.typed}"]
    if not is_run:  # the corpus and test set of a run are known
        words += ["data=files", "data.root=CORPUS"]
        if d.reference:
            words += [f"data.test_source={d.source}", f"data.test_target={d.reference}"]
    name = _unused(RUNS / "longer").name
    yield f"joined lines:\n  {shlex.join([*words, f'name={name}'])}"
    if [f"encoding={name}" for name in settings.encoding] == MEASURED:
        # a run that continued another model has a smaller rate than its parent
        is_known = is_run and settings.trainer.init_from is None
        rate = f"{settings.optim.lr:g}" if is_known else "PEAK"
        words += ["encoding=rotary", f"optim.lr={rate}", f"name={_unused(RUNS / 'replaced').name}"]
        yield f"joined lines, another encoding:\n  {shlex.join(words)}"
        if not is_known:
            yield "PEAK: the peak learning rate of the parent's training."
    if not is_run:
        yield "CORPUS: a directory with training and development text, as train.de, train.en."
    yield wrap("docs/long-text.md says what both gave on software manuals.")


def _unused(path: Path) -> Path:
    """The path if nothing is there, else with -2, -3, ... before its ending."""
    numbered = (path.with_stem(f"{path.stem}-{n}") for n in count(2))
    return next(p for p in chain([path], numbered) if not p.exists())


def _describe_limits(d: Diagnosis) -> Iterator[str]:
    if not d.reference:
        yield wrap("Whether what was attended to was translated rightly: add --reference.")
    yield wrap("Whether long lines of this text are harder for other reasons than their length.")
    if d.tried:
        yield wrap(
            "What is lost between parts: they are translated without what stands around them."
        )
