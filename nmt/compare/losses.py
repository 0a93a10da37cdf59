"""Of what is lost beyond the trained length, how much is the end sign, the place, the content."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from nmt.compare.report import LossParts, ScoredTest, Share
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.significance import interval, resampled
from nmt.compare.undertranslation import arrived, ngrams, own_ngrams

ORDER = (6,)
"""Character n-grams that are counted: of six, a word or so.

Shorter ones recur within any long line, so that some of them would arrive by chance.
"""

Floats = NDArray[np.float64]


def with_losses(
    scored: ScoredTest,
    test: TranslatedTest,
    forced: Sequence[Sequence[Sequence[str]]],
    bootstrap: Bootstrap,
) -> ScoredTest:
    """The scored test with the parts of each system's loss beyond its trained length.

    `forced` (system, run -> lines): the translations whose lengths were forced to those of the
    references; no run for a system that has none. See `loss_parts`.
    """
    limits = test.longest_trained or [None] * len(forced)
    losses = [
        None
        if longest is None or not runs
        else loss_parts(test, longest, test.hypotheses[s], runs, bootstrap)
        for s, (longest, runs) in enumerate(zip(limits, forced, strict=True))
    ]
    return replace(scored, losses=losses)


def loss_parts(
    test: TranslatedTest,
    longest: int,
    free: Sequence[Sequence[str]],
    forced: Sequence[Sequence[str]],
    bootstrap: Bootstrap,
) -> LossParts | None:
    """What is lost of lines longer than any in training, and why; None where no line is, or all.

    The lost share of some text is that of its character 6-grams (white space left out) that do not
    stand in the translation, each as often at most as there. A reference is cut in two: its
    beginning, as much of it as the trained length is of the line's, and its rest; lines within the
    trained length are cut in the middle. What both parts have proves nothing for either, and is not
    counted. Of free and forced search, lines pooled:

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
    assert test.lengths is not None, "a trained length is known in the unit of the lengths"
    lengths = np.array(test.lengths)
    beyond = lengths > longest
    if beyond.all() or not beyond.any():
        return None
    shares = np.where(beyond, longest / np.maximum(lengths, 1), 0.5)
    counts = np.array(
        [
            _counts(reference, share, [run[i] for run in free], [run[i] for run in forced])
            for i, (reference, share) in enumerate(zip(test.references, shares, strict=True))
        ]
    )
    near, far = counts[~beyond], counts[beyond]
    if not near[:, 0].sum() or not far[:, 3].sum():
        return None
    drawn = resampled(near, bootstrap.samples, bootstrap.seed)
    drawn_far = resampled(far, bootstrap.samples, bootstrap.seed + 1)  # independent of the others
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw may have no n-gram at all
        sampled = _parts(drawn, drawn_far)
    values = _parts(near.sum(0, keepdims=True), far.sum(0, keepdims=True))
    parts = {
        name: Share(float(values[name][0]), *interval(np.nan_to_num(sampled[name])))
        for name in values
    }
    return LossParts(pairs=int(beyond.sum()), **parts)


def _counts(
    reference: str, share: float, free: Sequence[str], forced: Sequence[str]
) -> list[float]:
    """Of a line: n-grams, those that arrived free and forced; of its beginning: n-grams, forced.

    Those that arrived are means over the runs.
    """
    letters = "".join(reference.split())
    cut = round(share * len(letters))
    parts = own_ngrams([letters[:cut], letters[cut:]], ORDER)
    arrivals = []  # of free and of forced outputs: in each part
    for outputs in (free, forced):
        counted = [ngrams(output, ORDER) for output in outputs]
        arrivals.append([fmean(arrived(part, grams) for grams in counted) for part in parts])
    sizes = [part.total() for part in parts]
    return [sum(sizes), *map(sum, arrivals), sizes[0], arrivals[1][0]]


def _parts(within: Floats, beyond: Floats) -> dict[str, Floats]:
    """The lost shares and their differences, from sums of `_counts` [samples, 5] each."""
    of_near = 1 - within[:, 1] / within[:, 0]
    of_far = 1 - beyond[:, 1] / beyond[:, 0]
    of_forced = 1 - beyond[:, 2] / beyond[:, 0]
    of_beginning = 1 - beyond[:, 4] / beyond[:, 3]
    return {
        "within": of_near,
        "beyond": of_far,
        "end": of_far - of_forced,
        "place": of_forced - of_beginning,
        "content": of_beginning - of_near,
    }
