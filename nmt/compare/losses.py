"""Of what is lost beyond the trained length, how much is the end sign, the place, the content."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt.compare.arrival import distinctive_ngrams, lost, means_over_seeds, ngrams, sampled_share
from nmt.compare.report import LossParts
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.significance import Floats

COLUMNS = 5  # of the counts of a line
CAUSES = ("end", "place", "content")  # differences of shares
SHARES = ("within", "beyond", *CAUSES)


def loss_parts(
    test: TranslatedTest, forced: Sequence[Sequence[Sequence[str]]], bootstrap: Bootstrap
) -> list[LossParts | None]:
    """What each system loses of lines longer than any in its training, and why.

    `forced` (system, run -> lines) are translations with forced lengths. None where no line is
    longer, or all are, without forced search or the trained length.

    The lost share of some lines is that of their references' character 6-grams that do not stand
    in the translations (`arrival`). The beginning of a reference is as much of it as the trained
    length is of the line's; only 6-grams that its rest does not have are counted of it. Of free and
    forced search, lines pooled:

    - within: the lost share of lines within the trained length, free search;
    - beyond: that of the longer lines, free search;
    - end: beyond, less the lost share of the same lines where the end sign is forbidden before the
      length of the reference and forced there;
    - place: that lost share with forced lengths, less that of the beginnings alone;
    - content: the lost share of the beginnings with forced lengths, less `within`.

    So end + place + content = beyond - within. Intervals are of a bootstrap over the pairs, lines
    within and beyond drawn apart, and over seeds (`seeds.over_seeds`).

    What this cannot separate: forcing tells the model how long the reference is, and whatever else
    follows from that counts as `end`; an output that is too long has more room for n-grams to
    arrive, which forcing takes from it, so that `end` may be negative; `place` is of the reference,
    so that a beginning counts as arrived wherever in the output it stands; long lines may be harder
    in other ways than by length, which counts as `content`.
    """
    counts = list[list[Floats]]()
    for free, same, longest in zip(test.hypotheses, forced, test.longest_trained, strict=True):
        runs = zip(free, same, strict=True) if same and longest is not None else []
        lengths, most = test.lengths or [], longest or 0
        counts.append([loss_counts(test.references, lengths, most, *pair) for pair in runs])
    known = [s for s, runs in enumerate(counts) if runs and all(map(divisible, runs))]
    draws = bootstrap.samples, bootstrap.seed
    by_run = [[parts_of_run(run, *draws) for run in counts[s]] for s in known]
    shares = {}
    for name in SHARES:
        values = [np.array([run[name] for run in runs]) for runs in by_run]
        least = -1 if name in CAUSES else 0
        shares[name] = means_over_seeds(values, bootstrap.seed, least)
    parts: list[LossParts | None] = [None] * len(counts)
    for n, s in enumerate(known):
        of_system = {name: shares[name][n] for name in SHARES}
        parts[s] = LossParts(pairs=int(_beyond(counts[s][0]).sum()), **of_system)
    return parts


def loss_counts(
    references: Sequence[str],
    lengths: Sequence[int],
    longest: int,
    free: Sequence[str],
    forced: Sequence[str],
) -> Floats:
    """Counts of one run's lines, from which all parts follow: [lines, COLUMNS].

    Of the reference's 6-grams: those lost by free search, all; and of lines longer than `longest`,
    the trained length: those lost with forced lengths; of the beginning, those lost with forced
    lengths, and all. Of the other lines the last three are -1.
    """
    counts = []
    for reference, length, *outputs in zip(references, lengths, free, forced, strict=True):
        whole, output, forced_output = map(ngrams, (reference, *outputs))
        of_whole = [lost(whole, output), whole.total()]
        if length <= longest:
            counts.append([*of_whole, -1, -1, -1])
            continue
        letters = "".join(reference.split())
        cut = round(len(letters) * longest / length)
        beginning, _ = distinctive_ngrams([letters[:cut], letters[cut:]])
        of_beginning = [lost(beginning, forced_output), beginning.total()]
        counts.append([*of_whole, lost(whole, forced_output), *of_beginning])
    return np.array(counts, dtype=np.float64).reshape(-1, COLUMNS)


def divisible(counts: Floats) -> bool:
    """Whether there are lines both within and beyond the trained length, and text to lose."""
    beyond = _beyond(counts)
    return bool(counts[~beyond, 1].sum() and counts[beyond, 4].sum())


def _beyond(counts: Floats) -> NDArray[np.bool_]:
    """Which lines are longer than any in training."""
    return counts[:, 2] >= 0


def parts_of_run(counts: Floats, samples: int, seed: int) -> dict[str, Floats]:
    """The parts of one run's loss by name: [1 + samples], of all its lines, and of draws."""
    beyond = counts[_beyond(counts)]
    within = sampled_share(counts[~_beyond(counts), :2], samples, seed)
    columns = (0, 1), (2, 1), (3, 4)  # the same draws of lines, independent of those within
    free, forced, beginning = (sampled_share(beyond[:, c], samples, seed + 1) for c in columns)
    return {
        "within": within,
        "beyond": free,
        "end": free - forced,
        "place": forced - beginning,
        "content": beginning - within,
    }
