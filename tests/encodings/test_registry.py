"""Names, options and sites of a config, and what is said of wrong ones."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Positions
from nmt.encodings.registry import create

DIMS = Dims("encoder", 1, 2, 8, 4)
NO_SITES: tuple[Any, ...] = (None, 3, {})
TWO = {"index": {"start": 1}, "shift": {"k": 3}}
NO_POSITIONS: tuple[Any, ...] = (None, 3, [], {}, ["shift"], {3: {}}, {"shift": 3}, TWO)


@pytest.mark.parametrize(
    "entries, said",
    [
        ({"relativ": {}}, "no encoding is called 'relativ'; did you mean relative?"),
        ({"base": {}}, "no encoding is called 'base'"),
        ({"os": {}}, "no encoding is called 'os'"),
        ({"relative": {"taau": 3}}, "encoding.relative.taau: no such key; did you mean tau?"),
        ({"relative": {"tau": "x"}}, "encoding.relative.tau=x: expected an integer"),
        ({"relative": {"where": ["middle"]}}, "where=middle: choose among"),
        *(({"relative": {"where": w}}, f"where={w}: choose some of enc") for w in NO_SITES),
        *(
            ({"absolute": {"at": at}}, f"encoding.absolute: at={at}: expected one name")
            for at in NO_POSITIONS
        ),
        (
            {"relative": {"at": "nowhere"}},
            "at=nowhere: no positions are called 'nowhere'; choose one of augment,",
        ),
        ({"absolute": {"at": {"index": {"strt": 1}}}}, "at.index.strt: no such key"),
        ({"absolute": {"at": {"index": {"start": 1.5}}}}, "start=1.5: expected an integer"),
        ({"absolute": {"at": {"index": {"step": 0}}}}, "encoding.absolute: at.index.step=0: all"),
        ({"fox": {"at": {"index": {"start": 1}}}}, "at=index: this encoding never looks at pos"),
    ],
)
def test_says_what_is_wrong(entries: dict[str, dict[str, Any]], said: str) -> None:
    with pytest.raises(ValueError) as e:
        create(entries, DIMS)
    assert said in str(e.value)


class Untyped(Encoding):
    def __init__(self, dims: Dims, strength=0.5) -> None:  # type: ignore[no-untyped-def]
        super().__init__(dims)


def test_an_option_without_a_type_is_told_from_one_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"^encoding\.mine: strength: has no type in __init__"):
        create({"mine": {"use": Untyped, "strength": 1}}, DIMS)
    assert create({"mine": {"use": Untyped}}, DIMS)


class NoDefault(Encoding):
    def __init__(self, dims: Dims, tau: int) -> None:
        super().__init__(dims)


@dataclass(frozen=True)
class NoDefaultPositions(Positions):
    k: int


def test_an_option_without_default_must_have_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^encoding\.mine\.tau: has no value; give"):
        create({"mine": {"use": NoDefault}}, DIMS)
    assert create({"mine": {"use": NoDefault, "tau": 3}}, DIMS)
    monkeypatch.setattr("nmt.encodings.registry.position_class", lambda name: NoDefaultPositions)
    with pytest.raises(ValueError, match=r"^encoding\.absolute\.at\.theirs\.k: has no value"):
        create({"absolute": {"at": "theirs"}}, DIMS)
    assert create({"absolute": {"at": {"theirs": {"k": 3}}}}, DIMS)


def test_positions_of_no_effect_may_be_the_default() -> None:
    assert create({"fox": {"at": {"index": {"start": 0, "step": 1}}}}, DIMS)


def test_where_selects_sites_and_order_is_kept() -> None:
    entries: dict[str, dict[str, Any]] = {
        "absolute": {"where": ["decoder"]},
        "rotary": {},
        "near": {"use": "relative", "tau": 2},
    }
    made = create(entries, DIMS)
    assert [(type(e).__name__, e.name) for e in made] == [
        ("Rotary", "rotary"),
        ("Relative", "near"),
    ]


@pytest.mark.parametrize("option", ["distances_only", "integer", "sites", "columns"])
def test_options_of_positions_are_their_fields(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option}: no such key"):
        create({"absolute": {"at": {"index": {option: True}}}}, Dims("encoder", 1, 2, 8, 4))


def test_what_works_on_embeddings_is_not_for_cross_attention() -> None:
    with pytest.raises(ValueError, match="where=cross: this encoding works on embeddings"):
        create({"absolute": {"where": "cross"}}, Dims("cross", 1, 2, 8, 4))
    assert create({"rotary": {"where": "cross"}}, Dims("cross", 1, 2, 8, 4))
    for entry in ("sigmoid_attention", "stick_breaking"):  # all they answer is `normalise`
        assert create({entry: {"where": "cross"}}, Dims("cross", 1, 2, 8, 4))


@pytest.mark.parametrize(
    "name, site, said",
    [
        ("cope", "cross", "one can only count between words of one sentence"),
        ("disan", "cross", "directions exist within one sentence only"),
        ("path_attention", "cross", "a path leads through the words of one text"),
        ("selective_rope", "cross", "turns add up along the words of one text"),
        ("sliding_window", "cross", "a window lies around a token of the same text"),
        ("coverage", "encoder", "only of a source can all be covered; where=cross"),
    ],
)
def test_some_are_not_for_every_site(name: str, site: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"^encoding\.{name}: where={site}: {said}$"):
        create({name: {"where": site}}, replace(DIMS, site=site))


@pytest.mark.parametrize(
    "use, at, options",
    [
        ("xpos", "remaining", {}),
        ("xpos", {"index": {"start": 90, "step": -1}}, {}),
        ("t5", {"index": {"start": 90, "step": -1}}, {}),
        ("tupe", {"index": {"start": 90, "step": -1}}, {"buckets": 8, "max_distance": 20}),
    ],
)
def test_a_decoder_does_not_count_down_where_only_the_past_has_distances(
    use: str, at: Any, options: dict[str, Any]
) -> None:
    """Buckets of a decoder are for the past, and the decay of xPos would grow with distance."""
    entries = {use: {"at": at, **options}}
    create(entries, DIMS)
    with pytest.raises(ValueError, match=f"encoding.{use}: positions that count down"):
        create(entries, replace(DIMS, site="decoder"))
