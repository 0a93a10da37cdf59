"""How to read the numbers of a report, as far as their marks occur; the same for every layout."""

from nmt.compare.notation import BEYOND, STAR, count, marks_of, seeds_note
from nmt.compare.report import FEW, REFERENCE, SIGNIFICANT, SOURCE, TESTED, Report


def notes_of(report: Report) -> list[str]:
    """Intervals, tests and marks; then lengths and budgets of training, as far as they are known.

    What a report says of its own making (`Report.notes`) and the signatures of its scores follow.
    """
    marks = marks_of(row for test in report.tests for row in test.rows)
    notes = [
        f"95%: interval, bootstrap over the pairs, {report.samples} samples, seed {report.seed}; "
        f"{seeds_note(report)}."
    ]
    if marks.tested:
        notes.append(
            f"p: paired bootstrap of the means over seeds against {report.systems[0].label}; "
            f"two-sided, uncorrected, from {TESTED} pairs. {STAR} p < {SIGNIFICANT}."
        )
    if marks.beyond:
        sides = " or ".join(dict.fromkeys(test.side for test in report.tests))
        notes.append(f"{BEYOND} every {sides} is longer than any in the system's training.")
    few_places = any(row.few for test in report.tests for row in test.places)
    few_losses = any(loss.few for test in report.tests for loss in test.losses if loss)
    if marks.few or few_places or few_losses:
        notes.append(f"few: under {FEW} pairs, not reliable.")
    if marks.published:
        notes.append("paper: Rosendahl et al. (2019).")
    for side in (SOURCE, REFERENCE):
        tests = [test for test in report.tests if test.longest and test.side == side]
        if tests:
            longest = ", ".join(f"{test.name} {count(test.longest)}" for test in tests)
            notes.append(f"Longest {side}: {longest}.")
    return [*notes, *budgets(report), *report.notes, *_signatures(report)]


def budgets(report: Report) -> list[str]:
    """The updates of all runs, and a warning if some had more than others."""
    runs = [(system.label, run.step) for system in report.systems for run in system.runs]
    if len(steps := {step for _, step in runs}) > 1:
        budgets = dict.fromkeys(f"{label} {count(step)}" for label, step in runs)
        return [
            f"Warning: systems were trained for different numbers of updates: {', '.join(budgets)}."
        ]
    labels = ", ".join(dict.fromkeys(label for label, _ in runs))
    who = "Every model was" if all(system.runs for system in report.systems) else f"{labels}:"
    return [f"{who} trained for {count(step)} updates." for step in steps]


def _signatures(report: Report) -> list[str]:
    """How each metric was computed, once where all tests agree."""
    metrics = [metric for test in report.tests for metric in test.metrics]
    return list(dict.fromkeys(f"{m.name}: {m.signature}" for m in metrics))
