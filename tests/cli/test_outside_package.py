"""Encodings and positions of after 2023, from a package of somebody else's, by every command."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nmt.build import transformer
from nmt.cli.encodings import main as encodings
from nmt.cli.evaluate import main as evaluate
from nmt.cli.train import main as train
from nmt.cli.translate import main as translate
from nmt.config.catalog import config_dir_override
from nmt.config.compose import experiment_of
from nmt.encodings import passes
from nmt.encodings.base import Dims
from nmt.encodings.registry import create
from nmt.testing import check_encoding
from tests.cli.test_plug_in import TINY
from tests.fast import fast_first
from tests.plug_ins import ROOT, install

PLACE = ROOT / "tests" / "outside"
BESIDE = ["--config-dir", str(PLACE)]
CLASSES = {"forgetting": "Forgetting", "slower_turns": "SlowerTurns"}
POSITIONS = {"bilevel": "Bilevel"}
BUILT_IN = {"forgetting": "fox", "slower_turns": "yarn"}
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


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CLASSES, *POSITIONS])
def test_has_a_card(name: str, capsys: Capture) -> None:
    assert encodings([name, *BESIDE]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{name}\n") and "cached decoding     exact" in shown


@pytest.mark.parametrize(
    "words",
    fast_first(
        2,
        [["forgetting"], ["bilevel"], ["slower_turns"], ["forgetting", BACK], ["bilevel", COMPLEX]],
    ),
)
def test_passes_all_checks(words: list[str]) -> None:
    in_encoder = BACK not in words
    check_encoding(
        *words, config_dir=PLACE, tokens=12, order_matters=in_encoder, precisions=["float32"]
    )


@pytest.mark.parametrize(
    "words",
    fast_first(1, [["encoding=forgetting", BACK], ["encoding=slower_turns"], ["encoding=bilevel"]]),
)
def test_trains_translates_with_a_beam_and_is_evaluated(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    places = [f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path}"]
    assert train([*BESIDE, *words, *TINY, *places, "name=run"]) == 0
    source, reference = tmp_path / "in.txt", tmp_path / "ref.txt"
    source.write_text("ein satz\nnoch ein satz\n", encoding="utf-8")
    reference.write_text("a sentence\nanother sentence\n", encoding="utf-8")
    capsys.readouterr()
    run = str(tmp_path / "run")
    assert translate([run, str(source), "decode.beam_size=4", "--threads", "1"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert evaluate([run, "--source", str(source), "--reference", str(reference)]) == 0
    assert "BLEU" in capsys.readouterr().out


def stacked(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gates of layers [heads, dim] and [heads] as the toolkit has them, for all layers together."""
    found: dict[str, list[Tensor]] = {}
    for name, weight in weights.items():
        place, gate, rest = name.partition(".gates.")
        kind = rest.rpartition(".")[2]
        ours = name if not gate else f"{place}.{'gate_bias' if kind == 'bias' else 'weight'}"
        found.setdefault(ours, []).append(weight)
    return {name: torch.stack(w) if len(w) > 1 else w[0] for name, w in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_says_what_the_one_of_the_toolkit_says(name: str) -> None:
    """With the same parameters, in all three sites where gates can be."""
    where = "[encoder,decoder,cross]" if name == "forgetting" else "[encoder,decoder]"
    made = {}
    for option in (name, BUILT_IN[name]):
        words = [f"encoding={option}", "model=tiny", f"encoding.{option}.where={where}"]
        settings = experiment_of([*config_dir_override(str(PLACE)), *words]).settings
        torch.manual_seed(1)
        made[option] = transformer(settings, 30, 30).double().eval()
    theirs, ours = (made[option] for option in (name, BUILT_IN[name]))
    ours.load_state_dict(stacked(theirs.state_dict()))
    source, target = torch.randint(4, 30, (2, 3, 9))
    torch.testing.assert_close(theirs.hidden(source, target, {}), ours.hidden(source, target, {}))


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
