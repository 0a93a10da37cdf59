"""Made-up records of LONGTEXT: what systems of known quality would leave."""

from pathlib import Path
from random import Random

import numpy as np

from scripts.longtext import records
from scripts.longtext.plan import LONGEST, Folders, TrainingRun
from scripts.longtext.records import RunRecord, Table
from scripts.longtext.texts import TIMES, WHOLE

LINES = 120


def leave(folders: Folders, run: TrainingRun, within: float, beyond: float) -> Path:
    """A record of a run that gets these shares of the words of short and of long lines right."""
    draw = Random(f"{run.part} {run.name}")
    longest = LONGEST.get(run.part)
    tests = {WHOLE: tables(draw, longest, within, beyond)}
    if longest is None:
        tests[WHOLE].pop("losses")
    for k in TIMES.get(run.part, ()):
        tests[f"joined{k}"] = tables(draw, longest, within, beyond)
        arrived = np.rint(np.linspace(within, beyond, k) * 40)[None, :].repeat(LINES, axis=0)
        left_out = (np.arange(LINES) < 30)[:, None].repeat(k, axis=1)  # a quarter
        parts = arrived, np.full_like(arrived, 40), np.zeros_like(arrived), left_out
        tests[f"joined{k}"]["parts"] = np.stack(parts, axis=2)
    about = {
        "step": 800,
        "seconds": 80.0,
        "dev_perplexity": 2.0,
        "parameters": 1000,
        "overrides": run.overrides,
        "settings": {"seed": run.seed},
        "texts": {"whole": "1"},
    }
    path = run.record(folders)
    records.write(path, RunRecord(about, tests))
    return path


def tables(draw: Random, longest: int | None, within: float, beyond: float) -> dict[str, Table]:
    """The tables of one test text."""
    most = longest or 20
    source = np.array([4 + (3 * most - 4) * line // LINES for line in range(LINES)])
    far = source > most
    chance = np.array([draw.uniform(-0.05, 0.05) for _ in range(LINES)])
    right = np.clip(np.where(far, beyond, within) + chance, 0, 1)
    grams = np.stack([source - n for n in range(4)], axis=1)
    matched = np.rint(grams * right[:, None] ** np.arange(1, 5))
    of_chrf = [np.stack([grams[:, 0]] * 2 + [matched[:, 0]], axis=1)] * 6
    lost = np.rint((1 - right) * source)
    unknown = np.full(LINES, -1)
    losses = [np.where(far, column, unknown) for column in (lost, lost // 3, source // 3)]
    return {
        "source": source,
        "reference": source,
        "BLEU": np.concatenate([np.stack([source] * 2, axis=1), matched, grams], axis=1),
        "chrF2": np.concatenate(of_chrf, axis=1),
        "exact": np.stack([right > 0.9, np.ones(LINES)], axis=1),
        "repeats": np.stack([lost // 2, source], axis=1),
        "likelihood": np.stack([-0.5 * source, source], axis=1),
        "losses": np.stack([lost, source, *losses], axis=1),
    }
