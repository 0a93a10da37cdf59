"""Made-up test sets: references, translations that are wrong to a chosen degree, and reports."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.evaluation.metrics import Floats, Metric, References, make_metrics
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import ComparedSystem, Report, TranslatedTest
from nmt.evaluation.scoring import choose_metrics, score_test

WORDS = [f"w{i}" for i in range(60)] + ["the", "of", "it's", "Mr."] * 5
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "שלום עולם, זה משפט <b>מימין</b> לשמאל",
    "zero\u200bwidth\ufeff and \u202eoverride\u202c, \x07bell, \x1b[31mred\x1b[0m, \x00nul",
    "</style></script>--><!-- ]]> &amp; &lt; \"quoted\" 'single'",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, a surrogate \ud800 and \u2028 a line",
]


def references(pairs: int, seed: int = 0, longest: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) + "." for _ in range(pairs)]


def noisy(lines: list[str], wrong: float, seed: int = 1) -> list[str]:
    """Each word is wrong with this probability, now and then dropped."""
    rng = random.Random(seed)

    def word(old: str) -> str:
        chance = rng.random()
        return "" if chance < wrong / 4 else rng.choice(WORDS) if chance < wrong else old

    return [" ".join(filter(None, map(word, line.split(" ")))) for line in lines]


def lengths(lines: list[str]) -> list[int]:
    return [len(line.split(" ")) for line in lines]


def by_name(lines: list[str], language: str = "en", names: Sequence[str] = ()) -> dict[str, Metric]:
    """Metrics against these references, for bootstraps of 100 samples with seed 1."""
    names = names or ["BLEU", "chrF2", "TER", "exact"]
    right = References(lines, language, samples=100, seed=1)
    return {metric.name: metric for metric in make_metrics(names, right)}


def score(metric: Metric, lines: Sequence[str]) -> float:
    """The value of a metric for some lines."""
    assert metric.counts
    return metric.value(metric.counts(lines).sum(0))


def compare(
    hypotheses: Mapping[str, list[list[str]]],
    right: list[str],
    trained: Sequence[int | None] = (),
    bounds: Sequence[int] = (10, 20, 35, 50),
    metrics: Sequence[str] = ("BLEU", "chrF2"),
    samples: int = 40,
    seed: int = 7,
    extra: Sequence[Sequence[Mapping[str, Floats]]] = (),
    **test: Any,
) -> Report:
    """The report of translations by label and run; lengths are those of the references."""
    values: dict[str, Any] = {
        "lengths": lengths(right), "unit": "words", "sources": [f"s {line}" for line in right],
        "trained": trained or [None] * len(hypotheses), "about": "Made up.",
    }  # fmt: skip
    translated = TranslatedTest(right, list(hypotheses.values()), **(values | test))
    options = EvaluationOptions(bounds=bounds, metrics=metrics, samples=samples, seed=seed)
    translated.metrics = choose_metrics(translated, options)
    figures = score_test(translated, list(hypotheses), options, extra)
    systems = [
        ComparedSystem(label, None, 1_234_567, 2_112, [
            {"run": f"runs/{label}-seed{n}", "seed": n, "step": 640, "dev_perplexity": 5.0 + n}
            for n in range(1, len(runs) + 1)
        ])
        for label, runs in hypotheses.items()
    ]  # fmt: skip
    return Report(
        systems, [translated], figures, samples, seed, "A title", "2026-11-28", "nmt-evaluate a b",
        ["A note."], {"versions": {"nmt": "0"}},
    )  # fmt: skip
