"""Minimum Bayes risk: of several translations, the one that is most like all of them."""

from collections import Counter
from collections.abc import Sequence


def by_utility(candidates: Sequence[str]) -> list[tuple[int, float]]:
    """Rank the candidates by expected utility, best first; each text once, equals in their order.

    Returns the index of the first candidate with a text, and its utility, from 0 to 100.
    The expectation is over the candidates themselves, each as probable as any other and a text that
    occurs twice twice as probable: over samples, an estimate without bias of the expectation under
    the model (Eikema and Aziz 2020). The utility is sacreBLEU's chrF2 (Popovic 2015).
    """
    from sacrebleu.metrics.chrf import CHRF  # takes a while

    metric, counts = CHRF(), Counter(candidates)

    def utility(text: str) -> float:
        scores = (metric.sentence_score(text, [other]).score * n for other, n in counts.items())
        return sum(scores) / len(candidates)

    choices = [(candidates.index(text), utility(text)) for text in counts]
    return sorted(choices, key=lambda choice: -choice[1])
