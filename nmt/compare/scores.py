"""Metrics as additive counts: read each line once, score any subset of lines.

BLEU, chrF and TER (sacreBLEU's) and exact match of a corpus are functions of sums over its
sentences. Buckets and bootstrap samples are subsets, so the costly part (n-grams, TER's shifts)
is done once for each system.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric, Score
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt import __version__
from nmt.errors import UserError

DEFAULTS = ("BLEU", "BLEU-moses", "chrF2", "TER")  # what a report shows unless asked otherwise
EXACT = "exact"  # the metric of exact matches
NAMES = (*DEFAULTS, "TER-moses", EXACT)  # all there are
CACHED = 2**16  # lines whose tokens are remembered, as two metrics ask for them
DEFAULT_TOKENIZER = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # as sacreBLEU maps them
WHOLE_FOR_MOSES = ("zh", "ja")  # languages that Moses leaves unsegmented
MOSES = "-moses"  # ends the names of metrics on text tokenised by Moses

Counts = NDArray[np.float64]  # [lines, columns]; the columns are the metric's own


@dataclass(frozen=True)
class Scorer:
    """One metric against fixed references."""

    name: str
    title: str
    higher_is_better: bool
    metric: "Metric | ExactMatch"
    signature: str
    prepare: Callable[[str], str] = str  # what is done to a line before the metric

    def counts(self, hypotheses: Sequence[str]) -> Counts:
        """Count matches line by line: [lines, columns], to be summed over any subset."""
        lines = list(map(self.prepare, hypotheses))
        # sacreBLEU offers this without the final sum only under a private name; its own
        # significance tests use the same two functions.
        return np.asarray(self.metric._extract_corpus_statistics(lines, None), dtype=np.float64)

    def score(self, summed: NDArray[np.float64]) -> float:
        """The corpus score of a set of lines, from the sum of their counts: [columns]."""
        return float(self.metric._compute_score_from_stats(summed.tolist()).score)


class ExactMatch:
    """The share of lines that equal their reference, in percent (Lake and Baroni 2018).

    White space is normalised first: none at the ends, and one space for each run of it inside.
    Case counts. Its two functions bear the names of sacreBLEU's, which `Scorer` calls. They raise
    ValueError if there are not as many lines as references.
    """

    signature = f"nrefs:1|case:mixed|space:normalised|version:nmt-{__version__}"

    def __init__(self, references: Sequence[str]) -> None:
        self.references = [" ".join(line.split()) for line in references]

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], _: None) -> list[list[int]]:
        """Equal or not, and one line: [lines, 2]."""
        pairs = zip(hypotheses, self.references, strict=True)
        return [[" ".join(line.split()) == reference, 1] for line, reference in pairs]

    def _compute_score_from_stats(self, summed: list[float]) -> Score:
        """Percent of the lines whose counts were summed: [2]."""
        return Score(EXACT, 100 * summed[0] / summed[1])


def scorers(
    references: Sequence[str], language: str, tokenize: str | None, samples: int, seed: int
) -> list[Scorer]:
    """All metrics for references in `language`; the first is BLEU.

    BLEU, chrF2 and TER read plain (detokenised) text. Rosendahl et al. (2019) score tokenised
    text: that is `BLEU-moses` and `TER-moses`, left out for languages that Moses does not
    segment. `samples` and `seed` of the bootstrap only enter the signatures. Raises UserError for
    a tokenizer that is not installed.
    """
    unspaced = language in WHOLE_FOR_MOSES
    tokenize = tokenize or DEFAULT_TOKENIZER.get(language, "13a")

    def make(
        name: str,
        title: str,
        build: Callable[..., Metric],
        better: bool = True,
        prepare: Callable[[str], str] = str,
    ) -> Scorer:
        metric = build(references=[list(map(prepare, references))])
        metric.n_bootstrap, metric.seed = samples, seed
        return Scorer(name, title, better, metric, str(metric.get_signature()), prepare)

    try:
        available = [
            make("BLEU", f"detokenised, cased, tokenizer {tokenize}", _bleu(tokenize)),
            make("chrF2", "character n-grams", CHRF),
            make(
                "TER",
                "lower is better; case ignored, as TERCom does",
                partial(TER, normalized=unspaced, asian_support=unspaced),
                better=False,
            ),
        ]
    except (ImportError, RuntimeError) as error:
        raise UserError(f"--tokenize {tokenize}: {str(error).strip().split(chr(10))[0]}") from None
    exact = ExactMatch(references)
    title = "% of lines equal to the reference, white space normalised"
    available.append(
        Scorer("exact", title, True, exact, f"{exact.signature}|bs:{samples}|seed:{seed}")
    )
    if not unspaced:
        moses, title = _moses(language), f"cased, on text tokenised by Moses ({language})"
        available.insert(1, make("BLEU-moses", title, _bleu("none"), prepare=moses))
        title = f"lower is better; case ignored, on text tokenised by Moses ({language})"
        available.append(make("TER-moses", title, TER, better=False, prepare=moses))
    return available


def of_language(names: Iterable[str], language: str) -> list[str]:
    """The metrics of these that there are for a target language."""
    return [n for n in names if not (n.endswith(MOSES) and language in WHOLE_FOR_MOSES)]


def refuse_moses(table: str, metrics: Iterable[str], language: str) -> None:
    """Raise UserError where a table needs words of Moses of a language that it does not segment."""
    if moses := next((name for name in metrics if not of_language([name], language)), None):
        plain = moses.removesuffix(MOSES)
        raise UserError(f"{table}: Moses does not segment {language}; use {plain} for {moses}")


def parse_metrics(text: str | None) -> list[str] | None:
    """Read `BLEU,exact`, in any case; raises UserError for a name that no metric bears."""
    if text is None:
        return None
    by_name = {name.lower(): name for name in NAMES}
    for word in text.split(","):
        if word.strip().lower() not in by_name:
            raise UserError(f"--metric {text}: no metric {word!r}; choose from {', '.join(NAMES)}")
    return list(dict.fromkeys(by_name[word.strip().lower()] for word in text.split(",")))


def select(available: Sequence[Scorer], names: Sequence[str] | None) -> list[Scorer]:
    """The scorers of these names, in this order; None: the usual ones.

    Raises UserError for a metric that the target language has not.
    """
    by_name = {scorer.name: scorer for scorer in available}
    if names is None:
        return [by_name[name] for name in DEFAULTS if name in by_name]
    if missing := next((name for name in names if name not in by_name), None):
        raise UserError(
            f"--metric {missing}: there is none for this target language; "
            f"choose from {', '.join(by_name)}"
        )
    return [by_name[name] for name in names]


def length_ratio(bleu_counts: Counts) -> float | None:
    """Tokens of the hypotheses over those of the references; None where there are none."""
    hypotheses, references = bleu_counts[:, :2].sum(axis=0)
    return float(hypotheses / references) if references else None


def _bleu(tokenize: str) -> Callable[..., Metric]:
    return partial(BLEU, tokenize=tokenize, force=True)


def _moses(language: str) -> Callable[[str], str]:
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return lru_cache(maxsize=CACHED)(partial(tokenizer.tokenize, return_str=True, escape=False))
