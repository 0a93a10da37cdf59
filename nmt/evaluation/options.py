"""The options of an evaluation, as commands, Python and tables fill them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from nmt.errors import UserError

BOUNDS = (25, 50, 75, 100)  # last lengths of the paper's buckets
SEED = 12345  # of the bootstrap and of the sample of sentences
TITLE = "Translation by source length"
LEAST_SAMPLES = 40  # of the bootstrap: with fewer, no interval of 95 % has two ends
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # need no download


class EvaluationOptions(NamedTuple):
    """Metrics, groups, search and report of an evaluation."""

    bounds: Sequence[int] = BOUNDS  # last length of each bucket; none: no buckets
    metrics: Sequence[str] | None = None  # the first one is drawn and sorts; None: the default ones
    columns: Mapping[str, Path] = {}  # integers parallel to the source of the one test, by name
    lengths: str | None = None  # the model that counts pieces, or reference; None: the first
    target_language: str | None = None  # for tokenisers; None: the models', or en
    tokenize: str | None = None  # of BLEU; None: by the target language
    samples: int = 1000  # of the bootstrap
    seed: int = SEED  # of the bootstrap
    decode: Mapping[str, Any] = {}  # key -> value, where models search otherwise than as trained
    device: str = "auto"
    threads: int | None = None  # of CPUs, in all; None: as many as the process may use
    workers: int | None = None  # processes that translate a text; None: as many as pay for it
    perplexity: bool = False  # of the references, too, by each model
    lost: bool = False  # why text beyond the trained length is lost; translates again
    attention: bool = False  # the share of the source that no translation attends to
    scores: Mapping[tuple[str, str], Path] = {}  # (name, system) -> a number for each line
    title: str = TITLE
    command: str = ""  # what was typed
    notes: Sequence[str] = ()  # on data and budget


USUAL = EvaluationOptions()


def check_bounds(bounds: Sequence[int]) -> None:
    """Raise UserError unless these are growing positive lengths."""
    if not bounds or bounds[0] < 1 or any(a >= b for a, b in pairwise(bounds)):
        text = ",".join(map(str, bounds))
        raise UserError(f"bounds={text}: each length must be larger than the one before, from 1")
