"""The paper's tables: what its runs are at each scale, what a table trains, and the whole."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmt import tables
from nmt.cli.train import main as train
from nmt.config.compose import experiment_of
from nmt.config.hydra_conf import Sweep, parse, sweep_of
from nmt.sweep import PlannedRun
from tests.in_process import LoggedCommand, noting, refuse_commands, start_by

TABLES = {
    "table1": ["R1", "R2", "R9", "R10"],
    "table2": ["R1", "R2", "R3", "R4", "R5"],
    "table3": ["R1", "R2", "R4", "R5"],
    "table4": ["R2", "R6", "R7", "R8"],
}
TINY = [
    *("model.dim=16", "model.feedforward_dim=16", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "trainer.batch_tokens=200", "trainer.max_steps=3"),
    *("trainer.log_every=1", "limits.full=12", "limits.short=9", "bounds=[6,12]"),
    *("data.train_pairs=80", "data.dev_pairs=10", "data.test_pairs=24", "data.test_longest=24"),
    *("decode=greedy", "samples=40", "jobs=2"),
]


def swept(*words: str) -> Sweep:
    sweep = sweep_of(parse(words))
    assert sweep is not None
    return sweep


def jobs(*words: str, keys: Sequence[str] = ("run", "seed")) -> list[tuple[str, ...]]:
    """What each job of a sweep says of these keys, before any is composed."""
    chosen = [{str(o.key_or_group): o for o in job} for job in swept(*words).jobs]
    return [tuple(str(job[key].input_line) for key in keys) for job in chosen]


def planned(*words: str) -> tables.PlannedTable:
    return tables.plan_table(swept(*words))


def test_a_table_is_its_runs_times_three_seeds(tmp_path: Path) -> None:
    for table, runs in TABLES.items():
        every = [(f"run={run}", f"seed={seed}") for run in runs for seed in (1, 2, 3)]
        assert sorted(jobs(f"experiment={table}")) == sorted(every)
    # the scale is the paper's
    table3 = planned("experiment=table3", f"runs={tmp_path}", "run=R1", "seed=3")
    assert (table3.report.table.test, table3.scale.tests.join) == ("joined", 2)
    assert table3.scale.bounds == [25, 50, 75, 100] and not table3.notes


def test_a_command_line_chooses_runs_and_seeds() -> None:
    def rows(*words: str) -> list[tuple[str, int]]:
        runs = planned("experiment=table2", "scale=toy", *words).runs
        return [(tables.label_of(each), each.settings.seed) for each in runs]

    assert rows("seed=1", "run=R5", "tau=4,8") == [
        *(("relative, max 36, tau4", 1), ("relative, max 36, tau8", 1))
    ]
    changed = experiment_of(["run=R2", "scale=wmt19", "data.root=x", "encoding.relative.tau=8"])
    assert tables.label_of(PlannedRun("one", changed)) == "relative, max 100, relative.tau-8"
    assert jobs("experiment=table2", "scale=toy", "seed=range(4,6)", "run=glob([R4,R5])") == [
        *(("run=R4", "seed=4"), ("run=R5", "seed=4")),
        *(("run=R4", "seed=5"), ("run=R5", "seed=5")),
    ]


def test_a_scale_without_the_second_corpus_says_so() -> None:
    table = planned("experiment=table1", "scale=toy", "seed=1")
    assert table.notes == ["Left out: R9, R10; scale toy has no data=toy_zhen."]
    assert {tables.label_of(each) for each in table.runs} == {
        "absolute, max 48",
        "relative, max 48",
    }


ONE = ["experiment=table2", "scale=toy", "run=R1", "seed=1"]
WRONG = {
    "no second corpus": (
        ["experiment=table1", "scale=toy", "run=R1,R9"],
        "there is no data=toy_zh",
    ),
    "no scale": (["run=R3"], "run=R3: at which scale? add scale=small or scale=toy or scale=wmt19"),
    "chinese": (
        [
            *("experiment=table2", "run=R1", "seed=1", "scale=small", "data.root=x"),
            "data.target_language=zh",
        ],
        "table.metrics: no metric BLEU-moses; for zh",
    ),
    "an encoding": (
        ["experiment=table1", "scale=toy", "encoding=rotary"],
        "encoding=: experiment=table1 is a list of runs, each with its own encoding; choose runs",
    ),
    "a name": (["experiment=table2", "scale=toy", "name=x"], "name=: each run of a table has its"),
    "clash": (
        [*ONE, "optim.lr=0.1,0.2"],
        "optim.lr=0.2: would share runs/table-toy/absolute-max48-seed1",
    ),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=list(WRONG))
def test_wrong_words_get_one_line_before_anything_starts(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start_by(monkeypatch, refuse_commands)
    assert train(words) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == ""


def test_missing_test_sets_name_the_command_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start_by(monkeypatch, refuse_commands)
    words = ["experiment=table1", f"data.root={tmp_path}", f"runs={tmp_path}", "seed=1"]
    (tmp_path / "test").mkdir()
    for code in ("de", "en"):
        (tmp_path / "test" / f"newstest2018.{code}").write_bytes(b"x\n")
    assert train([*words, "run=R1,R9"]) == 66
    command = f"make wmt19-zhen RECIPE=tests ROOT={tmp_path} makes it"
    assert f"newstest2019.zh: no such file; {command}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_miniature_table_and_the_next_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_by(monkeypatch)
    words = ["scale=toy", "run=R1,R4", *TINY, f"runs={tmp_path}", f"data.cache={tmp_path / 'c'}"]
    words.append("table.metrics=[BLEU-moses]")
    assert train(["experiment=table2", "seed=1", "attention=false", *words]) == 0
    out, err = capsys.readouterr()
    where = tmp_path / "table-toy"
    assert "2 runs, 0 of them finished, 2 at once" in err
    assert out == (where / "table2.txt").read_text(encoding="utf-8")
    assert re.search(r"^absolute, max 12 ", out, re.M) and re.search(
        r"^absolute, max 9 ", out, re.M
    )
    assert "Scale toy: sentences of the embedded grammar" in out
    report = json.loads((where / "table2.json").read_bytes())
    assert [group["name"] for group in report["tests"][0]["groups"]] == [
        *("0-6", "7-12", "over 12", "beyond training", "all")
    ]
    assert report["command"].startswith("nmt-train experiment=table2 seed=1")
    assert "<html" in (where / "table2.html").read_text(encoding="utf-8")[:200]
    assert (where / "table2.tsv").stat().st_size > 100

    # the next table trains nothing, and joins the test sentences
    start_by(monkeypatch, refuse_commands)
    assert train(["experiment=table3", "seed=1", "attention=false", *words]) == 0
    assert "concat_seq, " in capsys.readouterr().out

    # another seed trains that one alone; a run that fails leaves the others in the table
    started: list[LoggedCommand] = []
    words.remove("run=R1,R4")
    words.append("run=R1")  # one run shows the rest
    start_by(monkeypatch, noting(started, 70))
    assert train(["experiment=table3", "seed=1,2", "attention=false", *words]) == 70
    assert {each.name for each in started} == {"absolute-max12-seed2"}
    assert all("hydra.mode=RUN" in each.arguments for each in started)
    out, err = capsys.readouterr()
    assert "1 of 2 runs failed: absolute-max12-seed2: training failed (exit 70)" in err
    assert "absolute, max 12" in out and "absolute-max12-seed2: training failed" in out

    # the same directory for other text or another config is refused
    other = [word.replace("model.dim=16", "model.dim=32") for word in words]
    assert train(["experiment=table3", "seed=1", *other]) == 2
    err = capsys.readouterr().err
    assert "another config: model.dim: 16 -> 32; choose another directory: runs=DIR" in err


def test_a_finished_run_of_other_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for root, word in (("a", "eins"), ("b", "zwei")):
        (tmp_path / root).mkdir()
        for part in ("train", "dev", "test"):
            for code in ("de", "en"):
                (tmp_path / root / f"{part}.{code}").write_bytes(f"{word} {part}\n".encode() * 9)
    own = [w for w in TINY if not w.startswith(("data.", "samples", "jobs"))]
    words = ["scale=small", "seed=1", "run=R1", *own, f"runs={tmp_path}", f"data.cache={tmp_path}"]
    words += ["segmenter.merges=10", "trainer.device=cpu", "optim.warmup=2", "data.name=ab"]
    assert train([*words, f"data.root={tmp_path / 'a'}"]) == 0
    start_by(monkeypatch, refuse_commands)
    other = f"data.root={tmp_path / 'b'}"
    assert train(["experiment=table3", *words, other]) == 65
    err = capsys.readouterr().err
    assert "trained on other data than that of data=ab now" in err
    assert "choose another directory: runs=DIR" in err
