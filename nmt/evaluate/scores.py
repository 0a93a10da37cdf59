"""sacreBLEU's metrics as additive counts: read each line once, score any subset of lines.

BLEU, chrF and TER of a corpus are functions of sums over its sentences. Buckets and bootstrap
samples are subsets, so the costly part (n-grams, TER's shifts) is done once for each system.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.errors import UserError

DEFAULT_TOKENIZER = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # as sacreBLEU maps them
UNSPACED = ("zh", "ja")  # languages that Moses leaves unsegmented

Counts = NDArray[np.float64]  # [lines, columns]; the columns are the metric's own


@dataclass(frozen=True)
class Scorer:
    """One metric against fixed references."""

    name: str
    title: str
    higher_is_better: bool
    metric: Metric
    signature: str
    prepare: Callable[[str], str] | None = None  # what is done to a line before the metric

    def counts(self, hypotheses: Sequence[str]) -> Counts:
        """Count matches line by line: [lines, columns], to be summed over any subset."""
        lines = list(hypotheses) if self.prepare is None else list(map(self.prepare, hypotheses))
        # sacreBLEU offers this without the final sum only under a private name; its own
        # significance tests use the same two functions.
        return np.asarray(self.metric._extract_corpus_statistics(lines, None), dtype=np.float64)

    def score(self, summed: NDArray[np.float64]) -> float:
        """The corpus score of a set of lines, from the sum of their counts: [columns]."""
        return float(self.metric._compute_score_from_stats(summed.tolist()).score)


def scorers(
    references: Sequence[str], language: str, tokenize: str | None, samples: int, seed: int
) -> list[Scorer]:
    """The metrics of a report, main one first, for references in `language`.

    BLEU, chrF2 and TER read plain (detokenised) text. Rosendahl et al. (2019) score tokenised
    text: that is `BLEU-moses`, left out for languages that Moses does not segment. `samples`
    and `seed` of the bootstrap only enter the signatures. Raises UserError for a tokenizer
    that is not installed.
    """
    unspaced = language in UNSPACED
    tokenize = tokenize or DEFAULT_TOKENIZER.get(language, "13a")
    moses = None if unspaced else _moses(language)

    def make(
        name: str, title: str, build: Callable[..., Metric], better: bool = True, **more: Any
    ) -> Scorer:
        prepare = more.get("prepare")
        texts = list(references) if prepare is None else list(map(prepare, references))
        metric = build(references=[texts])
        metric.n_bootstrap, metric.seed = samples, seed
        return Scorer(name, title, better, metric, str(metric.get_signature()), **more)

    try:
        found = [
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
    if moses is not None:
        title = f"cased, on text tokenised by Moses ({language})"
        found.insert(1, make("BLEU-moses", title, _bleu("none"), prepare=moses))
    return found


def length_ratio(bleu_counts: Counts) -> float | None:
    """Tokens of the hypotheses over those of the references; None where there are none."""
    hypotheses, references = bleu_counts[:, :2].sum(axis=0)
    return float(hypotheses / references) if references else None


def _bleu(tokenize: str) -> Callable[..., Metric]:
    return partial(BLEU, tokenize=tokenize, force=True)


def _moses(language: str) -> Callable[[str], str]:
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return partial(tokenizer.tokenize, return_str=True, escape=False)
