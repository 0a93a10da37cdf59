"""The options of an evaluation, as commands, Python and tables fill them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BOUNDS = (25, 50, 75, 100)  # last lengths of the paper's buckets
SEED = 12345  # of the bootstrap and of the sample of sentences
TITLE = "Translation by source length"
LEAST_SAMPLES = 40  # of the bootstrap: with fewer, no interval of 95 % has two ends
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # need no download
CACHE = Path("data/translations")  # of models that are no runs; next to the prepared corpora


class EvaluationOptions(NamedTuple):
    """Metrics, test sets, search and output; None or empty: as the models say."""

    bounds: Sequence[int] = BOUNDS  # last length of each bucket
    metrics: Sequence[str] | None = None  # the first one is drawn; None: the usual ones
    columns: Mapping[str, Path] = {}  # integers parallel to the source of the one test, by name
    by_sentence: bool = False  # joined lines are read as the pieces of their sentences
    lengths: str | None = None  # the model that counts pieces, reference or both; None: the first
    target_language: str | None = None  # for tokenisers; None: the models', or en
    tokenize: str | None = None  # of BLEU; None: 13a, or the language's own
    samples: int = 1000  # of the bootstrap
    seed: int = SEED  # of the bootstrap
    decode: Mapping[str, Any] = {}  # key -> value, where models search otherwise than as trained
    device: str = "auto"
    threads: int | None = None  # of CPUs, in all; None: as many as the process may use
    workers: int | None = None  # processes that translate a text; None: as many as pay for it
    jobs: int = 1  # processes that count matches
    perplexity: bool = False  # of the references, too, by each model
    lost: bool = False  # why text beyond the trained length is lost; translates again
    attention: bool = False  # observe that of the models
    cache: Path = CACHE  # directory of the translations of models that are no runs
    quiet: bool = False  # no progress
    title: str = TITLE
    command: str = ""  # what was typed
    notes: Sequence[str] = ()  # on data and budget


DEFAULTS = EvaluationOptions()
