"""The diagnosis of long lines as one screen of text."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path

from nmt.evaluation.diagnose import LENGTH, Diagnosis, Losses
from nmt.evaluation.lost import LOST
from nmt.evaluation.metrics import REPETITION, UNATTENDED
from nmt.evaluation.notation import EMPTY, interval, number
from nmt.evaluation.report import Figure
from nmt.evaluation.text import table, wrap

COLUMNS = ("lines", "lost", "95 %", "unattended", "repeated", "length")
MEASURED = ["encoding=absolute"]  # for the others it was not measured what replacing them gives
RUNS = Path("runs")  # where nmt-train writes


def render_diagnosis(d: Diagnosis) -> str:
    sections = {"1. Length": _describe_lengths(d), "2. What is lost": _describe_losses(d)}
    if d.remedies:
        sample = f"{d.remedies[0].losses.lines} of the {d.beyond.lines} long lines"
        sections[f"3. Search settings, tried on {sample}"] = _describe_remedies(d)
        sections["4. Further training, not tried here"] = _suggest_training(d)
    sections["What this does not say"] = _describe_limits(d)
    parts = [f"{d.model.typed} on {d.source}\n"]
    for title, texts in sections.items():
        lines = (line for text in texts for line in text.split("\n"))
        parts += [title, *(f"  {line}".rstrip() for line in lines), ""]
    return "\n".join(parts).rstrip() + "\n"


def _describe_lengths(d: Diagnosis) -> Iterator[str]:
    total = d.within.lines + d.beyond.lines
    trained = (
        f"Training had sources of up to {d.trained} pieces."
        if d.trained
        else f"How long the sources of training were is not known; {d.divided_at} pieces are taken."
    )
    share = f"{d.beyond.lines} of {total} lines ({d.beyond.lines / total:.0%}) are longer"
    if not d.beyond.lines:
        share = f"None of the {total} lines is longer"
    yield wrap(f"{trained} {share}; the longest has {d.longest}.")


def _tabulate(rows: Mapping[str, Losses], without: Sequence[str]) -> str:
    """A table with a row for each of the losses; those of no lines are left out."""
    names = {"lost": LOST.name, "unattended": UNATTENDED, "repeated": REPETITION.name}
    table_rows = []
    for row_name, losses in rows.items():
        means = {name: figure.mean for name, figure in losses.figures.items()}
        percents = {column: number(means.get(name), "share") for column, name in names.items()}
        cells = {
            **{column: text if text == EMPTY else f"{text} %" for column, text in percents.items()},
            "lines": str(losses.lines),
            "95 %": interval(losses.figures.get(LOST.name), LOST),
            "length": number(means.get(LENGTH), "ratio"),
        }
        if losses.lines:
            table_rows.append([row_name, *(cells[c] for c in COLUMNS if c not in without)])
    return table(table_rows, ["", *(column for column in COLUMNS if column not in without)])


def _describe_losses(d: Diagnosis) -> Iterator[str]:
    unknown = ["unattended"] if d.reference else ["lost", "95 %"]
    yield _tabulate({f"up to {d.divided_at} pieces": d.within, "longer": d.beyond}, unknown)
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
    within, beyond = (losses.figures.get(LOST.name) for losses in (d.within, d.beyond))
    usual, now = (losses.figures.get(LENGTH) for losses in (d.within, d.beyond))
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


def _describe_remedies(d: Diagnosis) -> Iterator[str]:
    unknown = ["lines", "unattended", *([] if d.reference else ["lost", "95 %"])]
    yield _tabulate({remedy.name: remedy.losses for remedy in d.remedies}, unknown)
    yield ""
    lost = [(r.name, f) for r in d.remedies if (f := r.losses.figures.get(LOST.name))]
    if lost:  # there are references
        yield wrap(_judge(lost))
    for remedy in d.remedies:
        if remedy.overrides:
            output = unused(Path(f"{remedy.name.replace(' ', '-')}.txt"))
            words = ["nmt-translate", d.model.typed, d.source, "-o", output, *remedy.overrides]
            yield f"{remedy.name}:\n  {shlex.join(map(str, words))}"


def _judge(lost: Sequence[tuple[str, Figure]]) -> str:
    """Which setting loses least, if its interval and that of the first are apart."""
    name, least = min(lost, key=lambda pair: pair[1].mean)
    _, usual = lost[0]
    if least.high is None or usual.low is None or least.high >= usual.low:
        return "No setting certainly helps: all intervals overlap with the first."
    return f"Least is lost {name}: {100 * (usual.mean - least.mean):.1f} points less."


def _suggest_training(d: Diagnosis) -> Iterator[str]:
    settings, is_run = d.model.settings, d.model.run is not None
    words = ["nmt-train", "experiment=lengthen", f"parent={d.model.typed}"]
    if not is_run:  # the corpus and test set of a run are known
        words += ["data=files", "data.root=CORPUS"]
        if d.reference:
            words += [f"data.test_source={d.source}", f"data.test_target={d.reference}"]
    name = unused(RUNS / "longer").name
    yield f"joined lines:\n  {shlex.join([*words, f'name={name}'])}"
    if [f"encoding={name}" for name in settings.encoding] == MEASURED:
        # a run that continued another model has a smaller rate than its parent
        is_known = is_run and settings.trainer.init_from is None
        rate = f"{settings.optim.lr:g}" if is_known else "PEAK"
        words += ["encoding=rotary", f"optim.lr={rate}", f"name={unused(RUNS / 'replaced').name}"]
        yield f"joined lines, another encoding:\n  {shlex.join(words)}"
        if not is_known:
            yield "PEAK: the peak learning rate of the parent's training."
    if not is_run:
        yield "CORPUS: a directory with training and development text, as train.de, train.en."
    yield wrap("docs/long-text.md says what both gave on software manuals.")


def unused(path: Path) -> Path:
    """The path if nothing is there, else with -2, -3, ... before its ending."""
    numbered = (path.with_stem(f"{path.stem}-{n}") for n in count(2))
    return next(p for p in chain([path], numbered) if not p.exists())


def _describe_limits(d: Diagnosis) -> Iterator[str]:
    if not d.reference:
        yield wrap("Whether what was attended to was translated rightly: add --reference.")
    yield wrap("Whether long lines of this text are harder for other reasons than their length.")
    if d.remedies:
        yield wrap(
            "What is lost between parts: they are translated without what stands around them."
        )
