"""How long sequences may be follows from the positions that they may get: no table is left."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt import build
from nmt.checks import example, preflight
from nmt.config.settings import Settings
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context
from nmt.encodings.positions import Index
from nmt.encodings.registry import create
from nmt.encodings.site import SiteEncodings
from nmt.errors import UserError

TABLES: dict[str, dict[str, Any]] = {  # of tables that hold positions 0 to 11, or distances to 11
    "learned": {"size": 12},
    "axial": {"t1": 3, "t2": 4},
    "per_language": {"longest": 12},
    "tupe": {"longest": 12},
    "diet": {"longest": 12, "rank": 2},
    "bias_table": {"reference": "absolute", "longest": 12},
    "shaw_absolute": {"longest": 12},
    "synthesizer": {"longest": 12},
    "relative": {"tau": None, "longest": 12},
}
PLACES = {
    "index": {"index": {}},
    "start": {"index": {"start": 5}},
    "step": {"index": {"step": 3}},
    "back": {"index": {"start": 9, "step": -2}},
    "shift": {"shift": {"k": 7, "test": 2}},
    "sample": {"sample": {"longest": 12, "test_length": 4}},
    "one sample": {"sample": {"longest": 12, "test_length": 4, "test": "sample"}},
    "depth": {"depth": {}},
}
LIMITS = {  # of a table of positions, in training and in evaluation
    "index": (12, 12), "start": (7, 7), "step": (4, 4), "back": (5, 5), "shift": (6, 10),
    "sample": (12, 4), "one sample": (12, 4), "depth": (12, 12),
}  # fmt: skip
OF_DISTANCES = {**LIMITS, "start": (12, 12), "back": (6, 6), "shift": (12, 12)}
PAIRS = [(name, at) for name in ("learned", "relative") for at in PLACES]
PAIRS += [(name, "start") for name in TABLES if name not in ("learned", "relative")]


def made(name: str, at: Any, **more: Any) -> Encoding:
    options = {**TABLES[name], "at": at, "where": "encoder", **more}
    return create({name: options}, Dims("encoder", 1, 2, 8, 4))[0]


def run(e: Encoding, length: int, training: bool) -> None:
    """Ask all hooks of an encoding about sentences of so many tokens."""
    at = torch.arange(length)[None]
    ids = example.ids(4, length, 9)
    columns = example.columns([e], ids)
    if "heads" in columns:  # a chain: each word hangs on the one before it
        columns["heads"] = at.expand(4, -1)
    lengths = torch.full((4,), length)
    c = Context(
        "encoder", at, at, at, rows=4, lengths=lengths, tokens=ids, columns=columns,
        training=training,
    )  # fmt: skip
    site, x, q = SiteEncodings([e]), torch.zeros(4, length, 8), torch.zeros(4, 2, length, 4)
    site.embed(x, c)
    site.scores(q, q, 0, c)
    site.bias(0, c)
    site.outputs(q, x, q @ q.mT, 0, c)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("name", "place"), PAIRS)
def test_sequences_up_to_the_limit_are_encoded_and_no_longer_ones(
    name: str, place: str, training: bool
) -> None:
    e = made(name, PLACES[place]).train(training)
    expected = OF_DISTANCES if name == "relative" else LIMITS
    assert e.max_length(training) == expected[place][not training]
    torch.manual_seed(1)
    for _ in range(20 if training else 1):
        run(e, e.max_length(training) or 0, training)
    with pytest.raises(ValueError, match=r"position|distance"):
        for _ in range(40):
            run(e, (e.max_length(training) or 0) + 1, training)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["encoding=learned", "encoding.learned.size=555", "encoding.learned.at={shift:{k:500}}"],
         " data.max_length=55"),
        (["encoding=learned", "encoding.learned.size=100",
          "encoding.learned.at={index:{start:40}}"], " data.max_length=59"),
        (["encoding=randomized", "encoding.randomized.at.sample.test_length=100"],
         " data.max_length=99"),
        (["encoding=shaw_absolute", "data.max_length=101"], " data.max_length=100"),
        (["encoding=learned", "encoding.learned.size=1"], "; enlarge its table, or change at="),
    ],
)  # fmt: skip
def test_what_data_max_length_lets_in_must_fit(
    words: list[str], advice: str, settings_of: Callable[..., Settings]
) -> None:
    with pytest.raises(UserError) as e:
        preflight.check(settings_of(*words))
    assert str(e.value).endswith(advice) and "\n" not in str(e.value)


def test_who_has_no_table_of_distances_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Index, "max_distance", None)  # calling it is an error
    assert made("learned", "index").max_length(training=True) == 12


def test_cross_attention_has_a_limit_too(settings_of: Callable[..., Settings]) -> None:
    settings = settings_of("encoding=none")
    settings.encoding = {"shaw_absolute": {"longest": 12, "where": "cross"}}
    assert build.transformer(settings, 9, 9).limits(training=False) == (12, 12)
