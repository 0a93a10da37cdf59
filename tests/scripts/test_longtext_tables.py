"""The tables of LONGTEXT say what made-up records hold, and those in docs what theirs do."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from nmt.errors import UserError
from scripts.longtext import plan, records, systems, tables
from scripts.longtext.loss_tables import paired
from scripts.longtext.plan import RECORDS, Folders, Part, TrainingRun
from scripts.longtext.score_tables import contrast_table, over_encodings
from scripts.longtext.systems import Estimate, estimates, losses_by_run, systems_of
from scripts.longtext.texts import WHOLE
from tests.scripts.longtext_records import leave

ROOT = Path(__file__).parents[2]
BEYOND = {"absolute": 0.3, "rotary": 0.45, "relative": 0.6, "alibi_directional": 0.4}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Records of all runs."""
    root = tmp_path_factory.mktemp("longtext")
    folders = Folders(root / "runs", root / "records")
    for part in range(5):  # what runs there are follows from those before
        for run in plan.parts(folders)[part].runs:
            joined = float(run.label.split("share")[1]) if "share" in run.name else 0
            within, beyond = 0.9 - 0.1 * joined, BEYOND.get(run.encoding, 0.2) + joined * 0.4
            if run.part == plan.SCAN:
                within = beyond = 1.0 if run.encoding == "transformer_xl" else 0.5
            leave(folders, run, within, beyond + 0.01 * run.seed)
    return folders


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.split("\n") if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_the_page_says_what_the_records_hold(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "SAMPLES", 1000)
    output = folders.records.parent
    assert tables.main(["--records", str(folders.records), "--output", str(output)]) == 0
    page = (output / "tables.md").read_text()
    assert (output / "longtext.png").stat().st_size > 10_000
    sections = {part.split("\n")[0]: part for part in page.split("\n## ")[1:]}
    assert len(sections) == 10 and "Not finished" not in page
    assert row(sections["Rates"], "`lstm`") == ["`lstm`", "**2.000**", "2.000", "2.000"]
    for text in ("embedded corpus", "manuals"):
        ranks = sections[f"Ranks: {text}"]
        order = [line.split("`")[1] for line in ranks.split("\n") if line.startswith("| `")][:4]
        assert order == ["relative", "rotary", "alibi_directional", "absolute"]
        assert [row(ranks, f"`{name}`")[1] for name in order] == ["1", "2", "3", "4"]
        assert len(row(ranks, "`relative`")[3].split(",")) == (3 if "corpus" in text else 2)
        difference, p, alone = row(ranks, "`relative` - `absolute`")[1:]
        assert difference[0] == alone[0] == "+" and float(p.replace("<", "0")) < 0.01
        within, beyond, *causes = (
            float(cell.split()[0])
            for cell in row(sections[f"What is lost: {text}"], "`relative`")[1:]
        )
        assert sum(causes) == pytest.approx(beyond - within, abs=0.2)
    assert "of these 6 encodings: 1.00 [" in sections["The embedded corpus against the manuals"]
    parts = row(sections["By place in joined lines: manuals"], "`absolute`")
    assert parts[2:4] == ["90.0", "70.0"] and parts[-1] == "25.0"
    assert "anchor does not hold" not in page and sections["Anchor: SCAN beyond 26 actions"]
    remedy = [line.split("|")[1:-1] for line in sections["The remedy: joined lines"].split("\n")]
    gone = [line[-1].strip() for line in remedy if "`rotary`" in "".join(line)]
    price = [line[8].strip() for line in remedy if "`absolute`" in "".join(line)[:20]]
    assert price[0] == "-" and price[1][0] == price[2][0] == "-"  # 0.1 of the share is lost within
    assert (
        "with the deviation of its own seeds alone it is +" in sections["The remedy: joined lines"]
    )
    assert gone[0] == "-" and 15 < int(gone[1].split()[0]) < 35 < int(gone[2].split()[0]) < 60


def test_what_is_not_finished_is_not_shown(folders: Folders, tmp_path: Path) -> None:
    few = Folders(folders.runs, tmp_path / "records")
    part = plan.parts(folders)[1]
    for run in (run for p in plan.parts(folders)[:2] for run in p.runs):
        if run != part.runs[-1]:
            leave(few, run, 0.9, 0.5)
    assert systems_of(few, part) == []
    missing = "A 35 of 36, B 0 of 4, C 0 of 12, D 0 of 18"
    assert tables.unfinished(few) == [f"**Not finished yet, and not shown: {missing} runs.**"]
    assert tables.unfinished(folders) == []


def test_records_that_are_not_there_replace_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, output = tmp_path / "records", tmp_path / "new" / "directory"
    words = ["--records", str(empty), "--output", str(output)]
    assert tables.main(words) == 66
    assert f"--records {empty}: no such directory" in capsys.readouterr().err
    assert not output.exists()
    empty.mkdir()
    assert tables.main(words) == 0
    assert "Not finished yet" in (output / "tables.md").read_text()


def test_make_passes_arguments_on_to_the_tables() -> None:
    words = ["make", "-n", "-o", ".venv/installed", "longtext-tables", "TABLES=--records mine"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.endswith("scripts.longtext.tables --records mine\n")


def test_seeds_of_two_systems_alone_show_where_others_deviate_less() -> None:
    draws = np.random.default_rng(1).normal(size=(1, 400)) * 0.01

    def runs(*means: float) -> np.ndarray:
        return np.concatenate([np.array(means)[:, None] + draws * 0, draws + 0], axis=0)[
            : len(means)
        ]

    values = {"a": runs(10, 30, 20), "b": runs(15, 35, 25)}
    values |= {f"other{n}": runs(9.9, 10.1, 10) for n in range(8)}
    shown = contrast_table(values, [("b", "a")])
    difference, _, alone = row(shown, "`b` - `a`")[1:]
    widths = [
        float(c.split(", ")[1][:-1]) - float(c.split("[")[1].split(",")[0])
        for c in (difference, alone)
    ]
    assert widths[1] > 1.8 * widths[0]


def test_a_loss_that_differs_between_seeds_has_a_wide_interval() -> None:
    """What is lost within the trained length does not hide it: it is subtracted run by run."""
    beyond, within = (np.array([[b] * 200, [c] * 200]) for b, c in ((0.9, 0.7), (0.4, 0.4)))
    (known,) = estimates({"x": beyond - within}).values()
    low, high = known.interval()
    assert known.mean == pytest.approx(0.4) and low < 0.3 and high > 0.5


def test_remedies_are_compared_with_the_same_parent() -> None:
    """Parents that deviate do not widen what their children gain."""
    before = np.array([[10.0] * 300, [30.0] * 300])
    values = {
        "x-share0": before,
        "x-share0.5": before + 5,
        "y-share0": before,
        "y-share0.5": before + 7,
    }
    alone = {"x-share0.5": "x-share0", "y-share0.5": "y-share0"}
    gained = paired(values, alone, np.subtract)
    assert [estimate.shown() for estimate in gained.values()] == [
        "5.0 [5.0, 5.0]",
        "7.0 [7.0, 7.0]",
    ]
    levels = estimates(values)
    low, high = (levels["x-share0.5"] - levels["x-share0"]).interval()
    assert high - low > 20


def test_orders_that_chance_would_give() -> None:
    first = np.arange(6.0)[:, None]
    assert over_encodings(1.0, first, first) == f"over encodings, exact p {2 / 720:.3f}"
    assert over_encodings(0.6, first, first[[1, 0, 3, 2, 5, 4]]).startswith("over encodings [-0.")


def test_records_of_other_settings_or_texts_are_refused(folders: Folders, tmp_path: Path) -> None:
    runs = [TrainingRun("C", f"x-seed{seed}", "x", seed, ("a=1",)) for seed in (1, 2)]
    other = Folders(folders.runs, tmp_path)
    paths = [leave(other, run, 0.9, 0.5) for run in runs]
    part = Part("C", 1.0, 2, runs)
    assert len(systems_of(other, part)) == 1
    about, tests = records.read(paths[1])
    for name in ("settings", "texts"):
        changed = {**about, name: {**about[name], "key": "other"}}
        records.write(paths[1], records.RunRecord(changed, tests))
        with pytest.raises(UserError, match=rf"x-seed2\.npz: other {name} than"):
            systems_of(other, part)
    renamed = part._replace(runs=[run._replace(overrides=("a=2",)) for run in runs])
    with pytest.raises(UserError, match=r"x-seed1\.npz: of a run with a=1; the plan has a=2"):
        systems_of(other, renamed)


def test_parts_of_a_loss_are_those_of_its_runs(folders: Folders) -> None:
    part = next(part for part in plan.parts(folders) if part.name == plan.MANUALS)
    of_part = systems_of(folders, part)
    assert [len(system.runs) for system in of_part] == [2] * 6
    lost = {name: estimates(v) for name, v in losses_by_run(of_part[:2]).items()}
    for system in of_part[:2]:
        tables_ = system.tables(WHOLE, "losses")
        far = tables_[0][:, 2] >= 0
        shares = [table[far, 0].sum() / table[far, 1].sum() for table in tables_]
        assert lost["beyond"][system.label].mean == pytest.approx(np.mean(shares))
    assert Estimate(0.5, np.array([0.5, 2])).within(0, 1).samples.tolist() == [0.5, 1]


@pytest.mark.slow
def test_the_page_in_docs_is_that_of_its_records(tmp_path: Path) -> None:
    records_ = ROOT / RECORDS
    assert tables.main(["--records", str(records_), "--output", str(tmp_path)]) == 0
    assert (tmp_path / "tables.md").read_text() == (records_.parent / "tables.md").read_text()
