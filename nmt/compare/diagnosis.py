"""Signs of under-translation that the texts alone show."""

from collections import Counter
from collections.abc import Sequence

Parts = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Of each line: the source sentences and the reference sentences that it was joined from."""

ORDERS = range(1, 7)  # of character n-grams, those of chrF (Popović 2015)

LEFT_OUT = 1 / 3
"""Recall of the second half, over that of the first, below which it was left out.

Tried on 318 pairs of English sentences of at least 8 words (the test part of man-de-en), with
translations made of the references: 40 % of the words lost or replaced by others, a fifth of the
neighbours swapped, which leaves a recall of 0.38 and so is as good as a usual translation. Where
the second half was cut off, 97.5 % were found; of the whole ones 1.9 % were taken for cut ones
(1/2: 98.1 % and 9.1 %). With 75 % of the words wrong, 73 % and 9 %.
"""


def repeated(lines: Sequence[str], n: int = 4) -> float | None:
    """Of all n-grams of white-space words, the share that stood earlier in the same line.

    The second time counts, and each further one. A model that has lost its place says things
    again; the same share of the references tells how much of it is the way of the text. None
    where no line has n words. Raises ValueError for n below 1.
    """
    if n < 1:
        raise ValueError(f"n={n}: must be at least 1")
    again = total = 0
    for line in lines:
        words = line.split()
        grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        again += len(grams) - len(set(grams))
        total += len(grams)
    return again / total if total else None


def dropped_half(hypotheses: Sequence[str], parts: Parts) -> float | None:
    """The share of joined lines whose second half was left untranslated, judged by characters.

    Of k reference sentences, the last k // 2 are the second half. A half's own n-grams are its
    character n-grams of orders 1 to 6, white space left out, that the other half does not have;
    its recall is the share of them, all orders together, that stands in the hypothesis (each as
    often at most as there). The second half was left out if its recall is below a third
    (LEFT_OUT) of the first half's, or if the hypothesis is empty. Where in the hypothesis
    something stands plays no part, and what both halves say proves nothing for either.

    Lines of a single part are left out, and so are those of which a half has no n-gram of its
    own. None where no line remains. Raises ValueError unless there are as many parts as lines.
    """
    judged = [
        _dropped(hypothesis, references)
        for hypothesis, (_, references) in zip(hypotheses, parts, strict=True)
    ]
    known = [dropped for dropped in judged if dropped is not None]
    return sum(known) / len(known) if known else None


def _dropped(hypothesis: str, references: Sequence[str]) -> bool | None:
    """Whether the second half is missing; None where that cannot be told."""
    middle = len(references) - len(references) // 2
    first, second = (_grams(" ".join(half)) for half in (references[:middle], references[middle:]))
    said = _grams(hypothesis)
    recalls = _recall(first, second, said), _recall(second, first, said)
    if recalls[0] is None or recalls[1] is None:
        return None
    return not said or recalls[1] < LEFT_OUT * recalls[0]


def _grams(text: str) -> Counter[str]:
    """Character n-grams, counted, without white space."""
    letters = "".join(text.split())
    return Counter(letters[i : i + n] for n in ORDERS for i in range(len(letters) - n + 1))


def _recall(half: Counter[str], other: Counter[str], said: Counter[str]) -> float | None:
    """The share of a half's own n-grams that was said; None where it has none."""
    own = {gram: count for gram, count in half.items() if gram not in other}
    total = sum(own.values())
    return sum(min(count, said[gram]) for gram, count in own.items()) / total if total else None
