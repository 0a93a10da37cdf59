"""What figures are: values of counts that add up over lines.

BLEU, chrF, TER (sacreBLEU's), exact match, length ratio, repetition, perplexity: each is a
`Metric`.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt import __version__
from nmt.errors import Exit, UserError
from nmt.evaluation.options import METRICS

DEFAULT_TOKENIZER = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # as sacreBLEU maps them
WHOLE_FOR_MOSES = ("zh", "ja")  # languages that Moses leaves unsegmented
MOSES = "-moses"  # ends the names of metrics on text tokenised by Moses
# Thai to Tibetan, Myanmar, Khmer, kana, Chinese characters
UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
CACHED = 2**16  # lines whose tokens are remembered, as two metrics ask for them
EXACT, RATIO = "exact", "length ratio"
PERPLEXITY, UNATTENDED = "perplexity", "unattended source"

Lines = Sequence[str]
Floats = NDArray[np.float64]


def ratio(total: Floats) -> float:
    return float(total[0] / total[1]) if total[1] else math.nan


@dataclass(frozen=True)
class Metric:
    """A figure of some lines, computed from the sum of their counts."""

    name: str
    title: str
    form: str = "score"  # or "mean", "ratio", "share" (0 to 1, in percent), "points" (of shares)
    higher_is_better: bool | None = None  # None: neither
    signature: str = ""
    counts: Callable[[Lines], Floats] | None = None  # [lines, columns]; None: not of the text
    value: Callable[[Floats], float] = ratio  # of summed counts [columns]; NaN: of nothing

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and largest possible value, which an interval over seeds must not leave."""
        most = {"score": 100.0 if self.higher_is_better else inf, "share": 1.0, "points": 1.0}
        return {"mean": -inf, "points": -1.0}.get(self.form, 0.0), most.get(self.form, inf)

    @property
    def is_main(self) -> bool:
        """Whether tables show its intervals and p-values; JSON and TSV have those of all."""
        return self.form in ("score", "mean")

    @property
    def is_share(self) -> bool:
        return self.form in ("share", "points")


def make_metrics(
    names: Iterable[str],
    references: Lines,
    language: str = "en",
    tokenize: str | None = None,
    samples: int = 1000,
    seed: int = 12345,
) -> list[Metric]:
    """The metrics of these names for references in `language`, then length ratio and repetition.

    BLEU, chrF2 and TER read plain (detokenised) text. Rosendahl et al. (2019) score tokenised
    text: that is `BLEU-moses` and `TER-moses`. `samples` and `seed` of the bootstrap only enter the
    signatures. Raises UserError for a tokenizer that is not installed, and for a metric that the
    language has not.
    """
    names = list(dict.fromkeys(names))
    available = of_language(METRICS, language)
    if unknown := [name for name in names if name not in available]:
        raise UserError(
            f"--metric {unknown[0]}: there is none for this target language; "
            f"choose from {', '.join(available)}"
        )
    tokenize = tokenize or DEFAULT_TOKENIZER.get(language, "13a")
    bootstrap = samples, seed
    try:
        by_name = {
            name: _of_sacrebleu(name, references, language, tokenize, *bootstrap)
            for name in dict.fromkeys((*names, "BLEU"))
            if name != EXACT
        }
    except (ImportError, RuntimeError) as error:  # MeCab, and its dictionaries
        said = [line.strip(" .") for line in str(error).split("\n") if line.strip()]
        reason = "; ".join(dict.fromkeys((said[0], said[-1])))
        raise UserError(f"--tokenize {tokenize}: {reason}", Exit.UNAVAILABLE) from None
    about_ratio = "tokens of the translations over those of the references, as BLEU counts them"
    # the first columns of BLEU's counts are the lengths
    lengths = Metric(RATIO, about_ratio, "ratio", counts=by_name["BLEU"].counts)
    if EXACT in names:
        by_name[EXACT] = exact_match(references, f"bs:{samples}|seed:{seed}")
    return [*(by_name[name] for name in names), lengths, REPETITION]


def _of_sacrebleu(
    name: str, references: Lines, language: str, tokenize: str, samples: int, seed: int
) -> Metric:
    whole = language in WHOLE_FOR_MOSES
    bleu, ter = partial(BLEU, force=True), partial(TER, normalized=whole, asian_support=whole)
    of_moses = f"on text tokenised by Moses ({language})"
    lower = "lower is better; case ignored"
    kinds: dict[str, tuple[str, Callable[..., Any]]] = {
        "BLEU": (f"detokenised, cased, tokenizer {tokenize}", partial(bleu, tokenize=tokenize)),
        "BLEU-moses": (f"cased, {of_moses}", partial(bleu, tokenize="none")),
        "chrF2": ("character n-grams", CHRF),
        "TER": (f"{lower}, as TERCom does", ter),
        "TER-moses": (f"{lower}, {of_moses}", TER),
    }
    title, build = kinds[name]
    prepare = _moses(language) if name.endswith(MOSES) else str
    metric = build(references=[list(map(prepare, references))])
    metric.n_bootstrap, metric.seed = samples, seed
    # sacreBLEU offers counts without the final sum only under a private name; its own
    # significance tests use the same two functions
    return Metric(
        *(name, title, "score", not name.startswith("TER"), str(metric.get_signature())),
        lambda lines: np.asarray(
            metric._extract_corpus_statistics(list(map(prepare, lines)), None), np.float64
        ),
        lambda total: float(metric._compute_score_from_stats(total.tolist()).score),
    )


def exact_match(references: Lines, signature: str) -> Metric:
    """The share of lines that equal their reference, in percent (Lake and Baroni 2018).

    White space is normalised first: none at the ends, and one space for each run of it inside.
    """
    expected = [" ".join(line.split()) for line in references]

    def count(lines: Lines) -> Floats:
        pairs = zip(lines, expected, strict=True)
        return np.array([[" ".join(line.split()) == right, 1] for line, right in pairs], np.float64)

    signature = f"nrefs:1|case:mixed|space:normalised|version:nmt-{__version__}|{signature}"
    title = "% of lines equal to the reference, white space normalised"
    return Metric(EXACT, title, "score", True, signature, count, lambda total: 100 * ratio(total))


def repeats(lines: Lines) -> Floats:
    """For each line, the 4-grams of words that occurred earlier in it, and all its 4-grams.

    A model that has lost its place repeats itself; the share in the references is the usual one.
    """
    counts = []
    for words in map(str.split, lines):
        grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
        counts.append([len(grams) - len(set(grams)), len(grams)])
    return np.array(counts, np.float64).reshape(-1, 2)


REPETITION = Metric(
    *("repeated 4-grams", "share of the 4-grams that stood earlier in their line", "share", False),
    counts=repeats,
)
MODEL_METRICS = {  # whose counts [lines, 2] do not come from the text
    # negative log-probability and pieces
    PERPLEXITY: Metric(
        *(PERPLEXITY, "of the references, by piece", "ratio", False),
        value=lambda total: math.exp(ratio(total)),
    ),
    # pieces with little attention, and all
    UNATTENDED: Metric(
        UNATTENDED, "share of source pieces with almost no attention", "share", False
    ),
}


def is_unspaced(lines: Lines) -> bool:
    """Whether a text is mostly of a script without spaces between words, as Chinese and Thai."""
    letters = [letter for line in lines for letter in line if letter.isalpha()]
    return 2 * len(UNSPACED.findall("".join(letters))) > len(letters)


def of_language(names: Iterable[str], language: str) -> list[str]:
    return [n for n in names if not (n.endswith(MOSES) and language in WHOLE_FOR_MOSES)]


@lru_cache(maxsize=4)
def _moses(language: str) -> Callable[[str], str]:
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return lru_cache(maxsize=CACHED)(partial(tokenizer.tokenize, return_str=True, escape=False))
