"""What figures are: values of counts that add up over lines. METRICS are those to choose from.

BLEU, chrF2 and TER read plain (detokenised) text. Rosendahl et al. (2019) score tokenised text:
that is BLEU-moses and TER-moses.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import __version__
from nmt.errors import Exit, UserError

if TYPE_CHECKING:  # --help reads the names of metrics, and is to import no large library
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
else:
    Floats = Any

DEFAULT_TOKENIZER = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # as sacreBLEU maps them
WHOLE_FOR_MOSES = ("zh", "ja")  # languages that Moses leaves unsegmented
# Thai to Tibetan, Myanmar, Khmer, kana, Chinese characters
UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
CACHED = 2**16  # lines whose tokens are remembered, as two metrics ask for them
RATIO, PERPLEXITY, UNATTENDED = "length ratio", "perplexity", "unattended source"

Lines = Sequence[str]


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


class References(NamedTuple):
    """The right translations, and what metrics depend on besides them."""

    lines: Lines
    language: str = "en"
    tokenize: str | None = None  # of BLEU; None: by the language
    samples: int = 1000  # of the bootstrap; signatures name these two
    seed: int = 12345

    @property
    def tokenizer(self) -> str:
        return self.tokenize or DEFAULT_TOKENIZER.get(self.language, "13a")


class Scorer(NamedTuple):
    """How a metric counts translations, and what it makes of the sum: see `Metric`."""

    counts: Callable[[Lines], Floats]
    value: Callable[[Floats], float]
    signature: str


def by_sacrebleu(references: References, kind: str, **options: Any) -> Scorer:
    """A metric of sacreBLEU: BLEU, CHRF or TER."""
    import numpy as np
    from sacrebleu import metrics

    metric = getattr(metrics, kind)(references=[references.lines], **options)
    metric.n_bootstrap, metric.seed = references.samples, references.seed
    # sacreBLEU offers counts without the final sum only under a private name; its own
    # significance tests use the same two functions
    return Scorer(
        lambda lines: np.asarray(metric._extract_corpus_statistics(lines, None), np.float64),
        lambda total: float(metric._compute_score_from_stats(total.tolist()).score),
        str(metric.get_signature()),
    )


def bleu(references: References) -> Scorer:
    return by_sacrebleu(references, "BLEU", tokenize=references.tokenizer, force=True)


def ter(references: References) -> Scorer:
    by_characters = references.language in WHOLE_FOR_MOSES
    return by_sacrebleu(references, "TER", normalized=by_characters, asian_support=by_characters)


def exact_match(references: References) -> Scorer:
    """The share of lines that equal their reference, in percent (Lake and Baroni 2018).

    White space is normalised first: none at the ends, and one space for each run of it inside.
    """
    import numpy as np

    expected = [" ".join(line.split()) for line in references.lines]

    def count(lines: Lines) -> Floats:
        pairs = zip(lines, expected, strict=True)
        return np.array([[" ".join(line.split()) == right, 1] for line, right in pairs], np.float64)

    bootstrap = f"bs:{references.samples}|seed:{references.seed}"
    signature = f"nrefs:1|case:mixed|space:normalised|version:nmt-{__version__}|{bootstrap}"
    return Scorer(count, lambda total: 100 * ratio(total), signature)


class ListedMetric(NamedTuple):
    """A metric that users can choose: an entry of METRICS."""

    title: str  # may hold {tokenizer} and {language}
    scorer: Callable[[References], Scorer]
    by_moses: bool = False  # translations and references are tokenised by Moses first
    lower_is_better: bool = False
    is_default: bool = True  # computed unless others are chosen


METRICS = {
    "BLEU": ListedMetric("detokenised, cased, tokenizer {tokenizer}", bleu),
    "BLEU-moses": ListedMetric(
        "cased, on text tokenised by Moses ({language})",
        partial(by_sacrebleu, kind="BLEU", tokenize="none", force=True),
        by_moses=True,
    ),
    "chrF2": ListedMetric("character n-grams", partial(by_sacrebleu, kind="CHRF")),
    "TER": ListedMetric("case ignored, as TERCom does", ter, lower_is_better=True),
    "TER-moses": ListedMetric(
        "case ignored, on text tokenised by Moses ({language})",
        ter,
        by_moses=True,
        lower_is_better=True,
        is_default=False,
    ),
    "exact": ListedMetric(
        "% of lines equal to the reference, white space normalised", exact_match, is_default=False
    ),
}


def names_of_metrics(language: str = "en", default: bool = False) -> list[str]:
    """The METRICS for a target language: all, or those that are computed by default."""
    has_tokens = language not in WHOLE_FOR_MOSES
    return [
        name
        for name, metric in METRICS.items()
        if (has_tokens or not metric.by_moses) and (metric.is_default or not default)
    ]


def make_metrics(names: Iterable[str], references: References) -> list[Metric]:
    """The METRICS of these names, in any case; then length ratio and repetition.

    Raises UserError for a tokenizer that is not installed, and for a metric that is not one of the
    target language.
    """
    available = {name.lower(): name for name in names_of_metrics(references.language)}
    chosen = list(dict.fromkeys(available.get(name.lower(), name) for name in names))
    if unknown := [name for name in chosen if name not in available.values()]:
        raise UserError(
            f"--metric {unknown[0]}: there is none for this target language; "
            f"choose from {', '.join(available.values())}"
        )
    try:
        metrics = {name: _make_metric(name, references) for name in {*chosen, "BLEU"}}
    except (ImportError, RuntimeError) as error:  # MeCab, and its dictionaries
        lines = [line.strip(" .") for line in str(error).split("\n") if line.strip()]
        reason = "; ".join(dict.fromkeys((lines[0], lines[-1])))
        raise UserError(f"--tokenize {references.tokenizer}: {reason}", Exit.UNAVAILABLE) from None
    title = "tokens of the translations over those of the references, as BLEU counts them"
    # the first columns of BLEU's counts are the lengths
    lengths = Metric(RATIO, title, "ratio", counts=metrics["BLEU"].counts)
    return [*(metrics[name] for name in chosen), lengths, REPETITION]


def _make_metric(name: str, references: References) -> Metric:
    listed, language = METRICS[name], references.language
    better = "lower is better; " if listed.lower_is_better else ""
    prepare = _moses(language) if listed.by_moses else str
    lines = list(map(prepare, references.lines))
    counts, value, signature = listed.scorer(references._replace(lines=lines))
    return Metric(
        name,
        better + listed.title.format(tokenizer=references.tokenizer, language=language),
        higher_is_better=not listed.lower_is_better,
        signature=signature,
        counts=lambda lines: counts(list(map(prepare, lines))),
        value=value,
    )


def repeats(lines: Lines) -> Floats:
    """For each line, the 4-grams of words that occurred earlier in it, and all its 4-grams.

    A model that has lost its place repeats itself; the share in the references is the usual one.
    """
    import numpy as np

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


@lru_cache(maxsize=4)
def _moses(language: str) -> Callable[[str], str]:
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return lru_cache(maxsize=CACHED)(partial(tokenizer.tokenize, return_str=True, escape=False))
