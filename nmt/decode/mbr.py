"""Minimum Bayes risk: of several translations, the one that is most like all of them."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Choice(NamedTuple):
    """A candidate and its utility."""

    place: int  # index of the first candidate with this text
    utility: float  # mean sentence-level chrF2 against all candidates, from 0 to 100


def by_utility(candidates: Sequence[str]) -> list[Choice]:
    """Rank the candidates by expected utility, best first; each text once, equals in their order.

    The expectation is over the candidates themselves, each as probable as any other and a text that
    occurs twice twice as probable: over samples, an estimate without bias of the expectation under
    the model (Eikema and Aziz 2020). The utility is sacreBLEU's chrF2 (Popovic 2015).
    """
    from sacrebleu.metrics.chrf import CHRF  # takes a while

    metric, counts = CHRF(), Counter(candidates)

    def utility(text: str) -> float:
        scores = (metric.sentence_score(text, [other]).score * n for other, n in counts.items())
        return sum(scores) / len(candidates)

    choices = [Choice(candidates.index(text), utility(text)) for text in counts]
    return sorted(choices, key=lambda choice: -choice.utility)
