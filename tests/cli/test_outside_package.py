"""Encodings and positions of after 2023, from a package of somebody else's, by every command."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nmt.encodings import passes
from nmt.encodings.base import Dims
from nmt.encodings.registry import create
from nmt.testing import check_encoding
from tests.fast import fast_first
from tests.plug_ins import ROOT, install

PLACE = ROOT / "tests" / "outside"
BESIDE = ["--config-dir", str(PLACE)]
CLASSES = {"forgetting": "Forgetting", "slower_turns": "SlowerTurns"}
POSITIONS = {"bilevel": "Bilevel"}
COMPLEX = "encoding=[bilevel,complex_order]"
BACK = "encoding.forgetting.where=[decoder,cross]"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution of all modules, as pip lays it down."""
    site = tmp_path / "site"
    for group, classes in {"nmt.encodings": CLASSES, "nmt.positions": POSITIONS}.items():
        for name, of in classes.items():
            source = (PLACE / f"{name}.py").read_text(encoding="utf-8")
            install(site, "nmt-outside", name, f"outside_{name}:{of}", source, group)
    monkeypatch.syspath_prepend(site)
    yield
    for name in (*CLASSES, *POSITIONS):
        sys.modules.pop(f"outside_{name}", None)


@pytest.mark.parametrize(
    "words", fast_first(2, [["forgetting"], ["bilevel"], ["slower_turns"], ["bilevel", COMPLEX]])
)
def test_passes_all_checks(words: list[str]) -> None:
    check_encoding(*words, config_dir=PLACE, tokens=12, precisions=["float32"])


def levels(ids: list[int], end: int) -> tuple[list[int], list[int]]:
    """The places in segments, and the segments' numbers, token by token."""
    places, numbers, place, number = [], [], 0, 0
    for token in ids:
        places.append(place)
        numbers.append(number)
        place, number = (0, number + 1) if token == end else (place + 1, number)
    return places, numbers


def test_segments_found_from_tokens_are_those_of_plain_loops_at_every_step() -> None:
    """In one pass, and of hypotheses that grow by one or more tokens and change rows."""
    inner, outer = ({"bilevel": {"end": 2, "level": level}} for level in ("inner", "outer"))
    entries = {
        "places": {"use": "learned", "at": inner},
        "segments": {"use": "rotary", "at": outer},
    }
    dims = Dims("decoder", 1, 2, 8, 4)
    both = [e.positions for e in create(entries, dims)]
    assert [positions.ascending for positions in both] == [False, True]
    ids = torch.randint(1, 5, (3, 12), generator=torch.Generator().manual_seed(3))
    ids[0, :5] = torch.tensor([2, 2, 1, 1, 2])
    whole = passes.whole("encoder", 12, rows=3, tokens=ids)
    for level, positions in enumerate(both):
        wanted = [levels(row, 2)[level] for row in ids.tolist()]
        assert passes.with_positions(whole, positions).keys.tolist() == wanted
    state: dict[str, Tensor] = {}
    done = 0
    for n, rows in ((1, [0, 0, 2]), (3, [2, 1, 0]), (1, [1, 1, 1, 0]), (2, [0, 1, 2, 3])):
        known = {"rows": len(ids), "tokens": ids[:, done : done + n], "state": state}
        step = passes.step("decoder", done, n, ids.device, **known)
        done += n
        for level, positions in enumerate(both):
            found = passes.with_positions(step, positions)
            wanted = [levels(row[:done], 2)[level] for row in ids.tolist()]
            assert found.keys.tolist() == wanted
            assert found.queries.tolist() == [row[-n:] for row in wanted]
        ids, state = ids[rows], {name: kept[rows] for name, kept in state.items()}
