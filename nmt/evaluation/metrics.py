"""What figures are: values of counts that add up over lines.

BLEU, chrF, TER (sacreBLEU's), exact match, length ratio, repetition, perplexity: each is a
`Scorer`.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt import __version__
from nmt.errors import Exit, UserError
from nmt.evaluation.report import Metric
from nmt.evaluation.significance import Floats

DEFAULTS = ("BLEU", "BLEU-moses", "chrF2", "TER")  # what a report shows unless asked otherwise
NAMES = (*DEFAULTS, "TER-moses", "exact")  # all that compare translations with references
DEFAULT_TOKENIZER = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # as sacreBLEU maps them
WHOLE_FOR_MOSES = ("zh", "ja")  # languages that Moses leaves unsegmented
MOSES = "-moses"  # ends the names of metrics on text tokenised by Moses
# Thai to Tibetan, Myanmar, Khmer, kana, Chinese characters
UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
CACHED = 2**16  # lines whose tokens are remembered, as two metrics ask for them
RATIO, PERPLEXITY, UNATTENDED = "length ratio", "perplexity", "unattended source"

Lines = Sequence[str]
Count = Callable[[Lines], Floats]  # translations -> counts [lines, columns]


class Scorer(NamedTuple):
    """A metric, and how it is computed against fixed references."""

    metric: Metric
    counts: Count  # columns are the metric's own
    value: Callable[[Floats], float]  # of counts summed over lines [columns]; NaN: of nothing


def ratio(total: Floats) -> float:
    """The first count over the second."""
    return float(total[0] / total[1]) if total[1] else math.nan


def scorers(
    names: Iterable[str],
    references: Lines,
    language: str = "en",
    tokenize: str | None = None,
    samples: int = 1000,
    seed: int = 12345,
) -> list[Scorer]:
    """The metrics of these names for references in `language`, then length ratio and repetition.

    BLEU, chrF2 and TER read plain (detokenised) text. Rosendahl et al. (2019) score tokenised
    text: that is `BLEU-moses` and `TER-moses`. `samples` and `seed` of the bootstrap only enter the
    signatures. Raises UserError for a tokenizer that is not installed, and for a metric that the
    language has not.
    """
    whole = language in WHOLE_FOR_MOSES
    tokenize = tokenize or DEFAULT_TOKENIZER.get(language, "13a")
    moses = str if whole else _moses(language)

    def make(
        name: str,
        title: str,
        build: Callable[..., Any],
        better: bool = True,
        prepare: Callable[[str], str] = str,
    ) -> Scorer:
        metric = build(references=[list(map(prepare, references))])
        metric.n_bootstrap, metric.seed = samples, seed
        facts = Metric(name, title, "score", better, str(metric.get_signature()))
        # sacreBLEU offers counts without the final sum only under a private name; its own
        # significance tests use the same two functions
        return Scorer(
            facts,
            lambda lines: np.asarray(
                metric._extract_corpus_statistics(list(map(prepare, lines)), None), np.float64
            ),
            lambda total: float(metric._compute_score_from_stats(total.tolist()).score),
        )

    bleu, ter = partial(BLEU, force=True), partial(TER, normalized=whole, asian_support=whole)
    of_moses = f"on text tokenised by Moses ({language})"
    lower = "lower is better; case ignored"
    known: dict[str, Callable[[], Scorer]] = {
        "BLEU": lambda: make(
            "BLEU", f"detokenised, cased, tokenizer {tokenize}", partial(bleu, tokenize=tokenize)
        ),
        "chrF2": lambda: make("chrF2", "character n-grams", CHRF),
        "TER": lambda: make("TER", f"{lower}, as TERCom does", ter, better=False),
        "exact": lambda: exact_match(references, f"bs:{samples}|seed:{seed}"),
    }
    if not whole:
        known["BLEU-moses"] = lambda: make(
            "BLEU-moses", f"cased, {of_moses}", partial(bleu, tokenize="none"), prepare=moses
        )
        known["TER-moses"] = lambda: make("TER-moses", f"{lower}, {of_moses}", TER, False, moses)
    if missing := next((name for name in names if name not in known), None):
        raise UserError(
            f"--metric {missing}: there is none for this target language; "
            f"choose from {', '.join(name for name in NAMES if name in known)}"
        )
    try:
        made = {name: known[name]() for name in dict.fromkeys((*names, "BLEU"))}
    except (ImportError, RuntimeError) as error:  # MeCab, and its dictionaries
        said = [line.strip(" .") for line in str(error).split("\n") if line.strip()]
        reason = "; ".join(dict.fromkeys((said[0], said[-1])))
        raise UserError(f"--tokenize {tokenize}: {reason}", Exit.UNAVAILABLE) from None
    of_bleu = made["BLEU"].counts  # its first columns are the lengths
    about_ratio = "tokens of the translations over those of the references, as BLEU counts them"
    lengths = Metric(RATIO, about_ratio, "ratio")
    return [*(made[name] for name in names), Scorer(lengths, of_bleu, ratio), REPETITION]


def exact_match(references: Lines, signature: str) -> Scorer:
    """The share of lines that equal their reference, in percent (Lake and Baroni 2018).

    White space is normalised first: none at the ends, and one space for each run of it inside.
    """
    expected = [" ".join(line.split()) for line in references]

    def count(lines: Lines) -> Floats:
        pairs = zip(lines, expected, strict=True)
        return np.array([[" ".join(line.split()) == right, 1] for line, right in pairs], np.float64)

    signature = f"nrefs:1|case:mixed|space:normalised|version:nmt-{__version__}|{signature}"
    title = "% of lines equal to the reference, white space normalised"
    metric = Metric("exact", title, "score", True, signature)
    return Scorer(metric, count, lambda total: 100 * ratio(total))


def repeats(lines: Lines) -> Floats:
    """How many 4-grams of white-space words stood earlier in each line, and how many it has.

    A model that has lost its place says things again; the same share of the references tells how
    much of it is the way of the text.
    """
    counts = []
    for words in map(str.split, lines):
        grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
        counts.append([len(grams) - len(set(grams)), len(grams)])
    return np.array(counts, np.float64).reshape(-1, 2)


REPETITION = Scorer(
    Metric(
        "repeated 4-grams", "share of the 4-grams that stood earlier in their line", "share", False
    ),
    repeats,
    ratio,
)


def of_given(metric: Metric, value: Callable[[Floats], float] = ratio) -> Scorer:
    """The scorer of counts that do not come from the texts: [lines, 2]."""

    def count(lines: Lines) -> Floats:
        raise AssertionError(f"{metric.name} is not counted from text")

    return Scorer(metric, count, value)


GIVEN = {
    # negative log-probability and pieces
    PERPLEXITY: of_given(
        Metric(PERPLEXITY, "of the references, by piece", "ratio", False),
        lambda total: math.exp(ratio(total)),
    ),
    # pieces with little attention, and all
    UNATTENDED: of_given(
        Metric(UNATTENDED, "share of source pieces with almost no attention", "share", False)
    ),
}


def is_unspaced(lines: Lines) -> bool:
    """Whether a text is mostly of a script without spaces between words, as Chinese and Thai."""
    letters = [letter for line in lines for letter in line if letter.isalpha()]
    return 2 * len(UNSPACED.findall("".join(letters))) > len(letters)


def of_language(names: Iterable[str], language: str) -> list[str]:
    """The metrics of these that there are for a target language."""
    return [n for n in names if not (n.endswith(MOSES) and language in WHOLE_FOR_MOSES)]


def parse_metrics(text: str) -> list[str]:
    """Read `BLEU,exact`, in any case; raises UserError for a name that no metric bears."""
    by_name = {name.lower(): name for name in NAMES}
    for word in text.split(","):
        if word.strip().lower() not in by_name:
            raise UserError(f"--metric {text}: no metric {word!r}; choose from {', '.join(NAMES)}")
    return list(dict.fromkeys(by_name[word.strip().lower()] for word in text.split(",")))


@lru_cache(maxsize=4)
def _moses(language: str) -> Callable[[str], str]:
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return lru_cache(maxsize=CACHED)(partial(tokenizer.tokenize, return_str=True, escape=False))
