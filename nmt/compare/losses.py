"""Of what is lost beyond the trained length, how much is the end sign, the place, the content."""

from collections.abc import Sequence

import numpy as np

from nmt.compare.arrival import Floats, distinctive_ngrams, lost, ngrams
from nmt.compare.report import LossParts, Share
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.significance import interval, resampled


def loss_parts(
    test: TranslatedTest,
    longest: int | None,
    free: Sequence[Sequence[str]],
    forced: Sequence[Sequence[str]],
    bootstrap: Bootstrap,
) -> LossParts | None:
    """What is lost of lines longer than any in training, and why; None where that is not known.

    That is where no line is longer, or all are, without forced search or the trained length.

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
    within and beyond drawn apart, runs held fixed (means over them).

    What this cannot separate: forcing tells the model how long the reference is, and whatever else
    follows from that counts as `end`; an output that is too long has more room for n-grams to
    arrive, which forcing takes from it, so that `end` may be negative; `place` is of the reference,
    so that a beginning counts as arrived wherever in the output it stands; long lines may be harder
    in other ways than by length, which counts as `content`.
    """
    if longest is None or not forced:
        return None
    assert test.lengths is not None, "a trained length is known in the unit of the lengths"
    is_beyond = [length > longest for length in test.lengths]
    if all(is_beyond) or not any(is_beyond):
        return None
    counts_within, counts_beyond = list[list[float]](), list[list[float]]()
    for i, (reference, length) in enumerate(zip(test.references, test.lengths, strict=True)):
        free_ngrams = [ngrams(run[i]) for run in free]
        whole = ngrams(reference)
        if not is_beyond[i]:
            counts_within.append([lost(whole, free_ngrams), whole.total()])
            continue
        forced_ngrams = [ngrams(run[i]) for run in forced]
        letters = "".join(reference.split())
        cut = round(len(letters) * longest / length)
        beginning, _ = distinctive_ngrams([letters[:cut], letters[cut:]])
        counts_beyond.append(
            [
                *(lost(whole, free_ngrams), lost(whole, forced_ngrams), whole.total()),
                *(lost(beginning, forced_ngrams), beginning.total()),
            ]
        )
    within, beyond = np.array(counts_within), np.array(counts_beyond)
    if not within[:, 1].sum() or not beyond[:, 4].sum():
        return None
    values = _parts(within.sum(0, keepdims=True), beyond.sum(0, keepdims=True))
    sums = resampled(within, bootstrap.samples, bootstrap.seed)
    sums_beyond = resampled(beyond, bootstrap.samples, bootstrap.seed + 1)  # independent
    known = (sums[:, 1] > 0) & (sums_beyond[:, 4] > 0)  # a draw may have no n-gram at all
    sampled = _parts(sums[known], sums_beyond[known])
    parts = {name: Share(float(values[name][0]), *interval(sampled[name])) for name in values}
    return LossParts(pairs=len(beyond), **parts)


def _parts(within: Floats, beyond: Floats) -> dict[str, Floats]:
    """The lost shares and their differences, from sums of counts by sample.

    within: lost, all; beyond: lost, lost with forced lengths, all; of beginnings: lost, all.
    """
    share_within = within[:, 0] / within[:, 1]
    share_beyond, share_forced = beyond[:, 0] / beyond[:, 2], beyond[:, 1] / beyond[:, 2]
    share_of_beginnings = beyond[:, 3] / beyond[:, 4]
    return {
        "within": share_within,
        "beyond": share_beyond,
        "end": share_beyond - share_forced,
        "place": share_forced - share_of_beginnings,
        "content": share_of_beginnings - share_within,
    }
