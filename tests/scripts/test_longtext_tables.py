"""The tables of LONGTEXT say what made-up records hold, and those in docs what theirs do."""

from pathlib import Path

import numpy as np
import pytest

from nmt.compare.ranks import spearman
from nmt.errors import UserError
from scripts.longtext import plan, records, tables
from scripts.longtext.plan import RECORDS, Part, Places, Run
from scripts.longtext.systems import estimates, far_lines, systems_of
from scripts.longtext.texts import WHOLE
from tests.scripts.longtext_records import leave

ROOT = Path(__file__).parents[2]
BEYOND = {"absolute": 0.3, "rotary": 0.45, "relative": 0.6, "alibi_directional": 0.4}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Records of all parts, of four encodings where there are more."""
    root = tmp_path_factory.mktemp("longtext")
    places = Places(root / "runs", root / "records")
    for part in (0, 1):  # what runs there are follows from the rates
        for run in plan.parts(places)[part].runs:
            if run.encoding in BEYOND:
                leave(places, run, 0.9, BEYOND[run.encoding] + 0.01 * run.seed)
    for run in (run for part in plan.parts(places)[2:] for run in part.runs):
        joined = float(run.name.split("share")[-1].split("-")[0]) if "share" in run.name else 0
        if run.encoding in BEYOND or run.part == plan.SCAN:
            within, beyond = 0.9 - 0.1 * joined, BEYOND.get(run.encoding, 1.0) + joined * 0.4
            leave(places, run, 1.0 if beyond == 1 else within, beyond + 0.01 * run.seed)
    return places


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.split("\n") if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_the_page_says_what_the_records_hold(places: Places) -> None:
    output = places.records.parent
    assert tables.main(["--records", str(places.records), "--output", str(output)]) == 0
    page = (output / "tables.md").read_text()
    assert (output / "longtext.png").stat().st_size > 10_000
    sections = {part.split("\n")[0]: part for part in page.split("\n## ")[1:]}
    assert len(sections) == 9 and "**So far 42 of 70 runs are finished.**" in page
    for text in ("embedded grammar", "manuals"):
        ranks = sections[f"Ranks: {text}"]
        order = [line.split("`")[1] for line in ranks.split("\n") if line.startswith("| `")][:4]
        assert order == ["relative", "rotary", "alibi_directional", "absolute"]
        assert [row(ranks, f"`{name}`")[1] for name in order] == ["1", "2", "3", "4"]
        difference, p = row(ranks, "`relative` - `absolute`")[1:]
        assert difference.startswith("+") and p == "<.001"
        assert "relative_sinusoidal" not in ranks, "no record has it"
        lost = sections[f"What is lost: {text}"]
        within, beyond, *causes = (float(cell.split()[0]) for cell in row(lost, "`relative`")[1:])
        assert sum(causes) == pytest.approx(beyond - within, abs=0.2)
    assert (
        "rho of these 4 encodings: 1.00 [1.00, 1.00]" in sections["The grammar against real text"]
    )
    places_ = sections["By place in joined lines: manuals"]
    assert row(places_, "`absolute`")[2:4] == ["90.0", "70.0"]
    assert "Below 90 %" not in sections["Anchor: SCAN beyond 26 actions"]
    remedy = [
        line for line in sections["The remedy: joined lines"].split("\n") if "`rotary`" in line
    ]
    gone = [line.strip("|").split("|")[-1].strip() for line in remedy]
    assert gone[0] == "-" and 15 < int(gone[1].split()[0]) < 35 < int(gone[2].split()[0]) < 60


def test_contrasts_are_those_of_the_means_over_seeds(places: Places) -> None:
    part = next(part for part in plan.parts(places) if part.name == plan.MANUALS)
    systems = systems_of(places, part)
    assert [len(system.runs) for system in systems] == [2] * 4
    far = far_lines(systems, plan.MANUALS)
    values = estimates(systems, WHOLE, "BLEU", far)
    difference = values["relative"] - values["absolute"]
    low, high = difference.interval()
    wide_low, wide_high = difference.interval(8)
    assert wide_low < low < difference.mean < high < wide_high
    assert values["relative"].p(values["absolute"]) < 0.001 < values["rotary"].p(values["rotary"])
    assert spearman(*(np.array([[v.mean] for v in values.values()]),) * 2) == pytest.approx(1)


def test_records_of_other_texts_are_refused(places: Places, tmp_path: Path) -> None:
    runs = [Run("C", f"x-seed{seed}", "x", seed, ()) for seed in (1, 2)]
    other = Places(places.runs, tmp_path)
    paths = [leave(other, run, 0.9, 0.5) for run in runs]
    about, tests = records.read(paths[1])
    tests[WHOLE]["reference"] = tests[WHOLE]["reference"] + 1
    records.write(paths[1], records.Record(about, tests))
    with pytest.raises(UserError, match=r"x-seed2\.npz: of other test texts"):
        systems_of(other, Part("C", 1.0, 2, runs))


@pytest.mark.slow
def test_the_page_in_docs_is_that_of_its_records(tmp_path: Path) -> None:
    records_ = ROOT / RECORDS
    assert tables.main(["--records", str(records_), "--output", str(tmp_path)]) == 0
    assert (tmp_path / "tables.md").read_text() == (records_.parent / "tables.md").read_text()
