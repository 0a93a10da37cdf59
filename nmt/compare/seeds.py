"""Comparisons of encodings whose unit is the seed of training.

Two trainings that differ in the seed alone may differ by more than two encodings (Zhou et al. 2024,
Transformers Can Achieve Length Generalization But Not Robustly).
"""

from collections.abc import Sequence

import numpy as np

from nmt.compare.significance import Floats


def over_seeds(scores: Sequence[Floats], seed: int) -> list[Floats]:
    """Samples [samples] of each system's mean over all seeds that it might have had.

    `scores` [runs, samples] are those of each system's runs on the same drawn lines. Seeds deviate
    by as much in all systems: of few, the deviation of one system alone is hardly known. So each
    mean gets a deviation by Student's t, whose degrees of freedom are the runs of all systems less
    one for each. Of a system with one run, or a text, nothing is known of other seeds: its samples
    come back.

    Of two to five seeds, whose scores deviate three times as much as the mean of the lines,
    intervals cover the truth in 95 % of trials or more, and two systems that do not differ have
    p < 0.05 in 2 to 6 %. Runs drawn with replacement give 74 to 90 % and 10 to 26 %. Where one
    system deviates twice as much as the other, its intervals cover in 89 to 94 %, and p errs as
    before (simulated). Systems that deviate far more than most others have intervals that are far
    too narrow, half of them without the truth for 2 of 12 that deviate by 20 times as much: look at
    the runs' own scores.
    """
    degrees = sum(len(runs) - 1 for runs in scores)
    if not degrees:
        return [runs[0] for runs in scores]
    squares = sum(((runs - runs.mean(axis=0)) ** 2).sum(axis=0) for runs in scores)
    deviation = np.sqrt(squares / degrees)  # [samples]
    rng = np.random.default_rng(seed)
    means = []
    for runs in scores:
        by_chance = deviation * rng.standard_t(degrees, size=len(deviation)) / np.sqrt(len(runs))
        means.append(runs.mean(axis=0) + by_chance * (len(runs) > 1))
    return means
