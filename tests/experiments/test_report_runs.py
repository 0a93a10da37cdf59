"""nmt-report: which runs are one system, what it refuses, and the whole on tiny trained runs."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from nmt import manifest, modeldir
from nmt.cli import report, train, translate
from nmt.compare import text
from nmt.compare.report import PaperTable
from nmt.errors import UserError
from nmt.experiments import report as reports
from nmt.experiments import systems
from nmt.experiments import translate as translations
from nmt.experiments.processes import LoggedCommand
from nmt.experiments.report import ReportedTest, ReportOptions
from nmt.experiments.systems import FinishedRun
from nmt.experiments.testsets import ParallelFiles
from nmt.experiments.translate import KeptTranslation
from tests.training import tiny

TINY = [
    *("experiment=compare", "model.dim=16", "model.feedforward_dim=16", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "trainer.batch_tokens=100"),
    *("data.train_pairs=60", "data.train_longest=9", "data.dev_pairs=10", "data.test_pairs=20"),
    *("data.test_longest=40", "trainer.max_steps=4", "trainer.log_every=2"),
    *("decode.max_length_ratio=0.5", "decode.max_length_offset=2"),
]
RUNS = {
    "absolute-seed1": ["encoding=absolute"],
    "absolute-seed2": ["encoding=absolute", "seed=2"],
    "relative_seed1": ["encoding=relative", "tau=2"],
    "stopped": ["encoding=none"],
}


class Made:
    """Three tiny runs that are finished and one that is not, and their test set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        words = [*TINY, f"data.cache={root / 'cache'}", f"runs={root}"]
        for name, own in RUNS.items():
            with pytest.MonkeyPatch.context() as patch:
                if name == "stopped":
                    tiny.stop_after(patch, 3)
                code = train.main([*words, *own, f"name={name}"])
            assert code == (143 if name == "stopped" else 0)
        for name in ("absolute-seed2", "stopped"):  # as after a kill: a hint is no proof
            status = root / name / "status.json"
            wrong = b"finished" if name == "stopped" else b"running"
            status.write_bytes(
                re.sub(rb'"state": "\w+"', b'"state": "%s"' % wrong, status.read_bytes())
            )
        (text,) = (root / "cache").glob("*/text")
        self.source, self.reference = text / "test.de", text / "test.en"

    def runs(self, *names: str) -> list[str]:
        return [str(self.root / name) for name in names]

    def test(self, name: str = "toy") -> list[str]:
        return ["--test", f"{name}={self.source},{self.reference}"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[LoggedCommand]:
    """Jobs run in this process, and are counted: `nmt-compare`'s tests start real ones."""
    done: list[LoggedCommand] = []

    def run_all(
        asked: Sequence[LoggedCommand], at_once: int, state: Callable[[str], str]
    ) -> dict[str, int]:
        done.extend(asked)
        return {job.name: translate.main([*job.arguments]) for job in asked}

    monkeypatch.setattr(translations, "run_all", run_all)
    return done


def finished(label: str | None, directory: Path, device: str) -> FinishedRun:
    return systems._read(label, directory, device)


def refuse_commands(*asked: Any) -> dict[str, int]:
    raise AssertionError("a command was started")


def test_the_whole_and_again(
    made: Made,
    jobs: list[LoggedCommand],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {kind: tmp_path / "out" / f"made.{kind}" for kind in ("json", "tsv", "html")}
    words = [*made.runs("absolute-seed2", "relative_seed1", "absolute-seed1"), *made.test()]
    words += ["--joined", str(tmp_path / "joined"), "--bounds", "9,20", "--samples", "40"]
    words += [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    words += ["--title", "Tiny & true", "--device", "cpu", "--jobs", "1"]
    assert report.main(words) == 0
    out, err = capsys.readouterr()
    assert len(jobs) == 6 and {job.module for job in jobs} == {"translate"}
    assert out.startswith("Tiny & true\n\ntoy: test.de and test.en\n")
    assert "toy-joined: consecutive pairs of toy, joined\n" in out
    assert "BLEU-moses / TER-moses" in out and "  ± 2 seeds" in out and "^" in out
    assert "Under-translation, toy-joined" in out and "second half dropped, %" in out
    assert "greedy search" in out and "first run of each system" in out

    plain = json.loads(files["json"].read_bytes())
    assert [each["label"] for each in plain["systems"]] == ["absolute", "relative"]
    first, second = plain["systems"]
    assert [run["seed"] for run in first["runs"]] == [1, 2]
    assert first["runs"][0]["step"] == 4 and len(first["runs"][0]["curve"]["train"]) == 2
    trained = modeldir.load(made.root / "relative_seed1")
    assert second["parameters"] == sum(p.numel() for p in trained.model.parameters())
    assert second["encoding_parameters"] > first["encoding_parameters"] == 0
    assert second["longest_trained"] == trained.facts["longest_source"]
    assert plain["about"]["files"]["toy source"]["sha256"] and plain["seed"] == 12345

    toy, joined = plain["tests"]
    assert [row["pairs"] for row in joined["rows"]][-1] == 10 == toy["rows"][-1]["pairs"] // 2
    assert [metric["name"] for metric in toy["metrics"]][:2] == ["BLEU-moses", "TER-moses"]
    assert all("version:" in metric["signature"] for metric in toy["metrics"])
    score = toy["rows"][-1]["cells"][0]["scores"]["BLEU"]
    texts = [made.root / f"absolute-seed{s}" / "translations" / "toy.txt" for s in (1, 2)]
    right = made.reference.read_text().split("\n")[:-1]
    each = [BLEU().corpus_score(t.read_text().split("\n")[:-1], [right]).score for t in texts]
    assert score["seeds"] == pytest.approx(each) and score["mean"] == pytest.approx(sum(each) / 2)
    signs = [row["cells"][0]["signs"] for row in joined["rows"] if row["pairs"]]
    assert signs[-1]["dropped_half"] is not None and signs[0]["unattended"] is not None
    assert toy["rows"][-1]["cells"][0]["signs"]["dropped_half"] is None
    assert len(toy["examples"]) > 5
    for example in toy["examples"]:
        assert len(example["pieces"]) == example["length"]
        assert [len(h["coverage"]) for h in example["hypotheses"]] == [example["length"]] * 2
    sites = {(p["system"], p["test"], p["site"]) for p in plain["profiles"]}
    assert {(s, t, "cross") for s in (0, 1) for t in ("toy", "toy-joined")} <= sites
    assert files["tsv"].read_text().count("\tTER\t") == sum(
        len(row["cells"]) for test in plain["tests"] for row in test["rows"] if row["pairs"]
    )
    page = files["html"].read_text()
    assert "Tiny &amp; true" in page and page.rstrip().endswith("</html>")

    # the same again translates nothing, and says the same
    monkeypatch.setattr(translations, "run_all", refuse_commands)
    assert report.main(words) == 0
    assert capsys.readouterr().out == out

    # without attention there is none; other text of the same name is translated anew
    monkeypatch.undo()
    other = tmp_path / "other.de"
    other.write_bytes(made.source.read_bytes().replace(b".", b"!"))
    asked: list[LoggedCommand] = []

    def fails(
        given: Sequence[LoggedCommand], at_once: int, state: Callable[[str], str]
    ) -> dict[str, int]:
        asked.extend(given)
        for job in given:
            job.log.write_text("reading\nnmt: out of memory\n")
        return {job.name: 71 for job in given}

    monkeypatch.setattr(translations, "run_all", fails)
    words = [
        *made.runs("absolute-seed1", "absolute-seed2"),
        "--test",
        f"toy={other},{made.reference}",
    ]
    assert report.main([*words, "--json", str(tmp_path / "none.json")]) == 70
    out, err = capsys.readouterr()
    assert len(asked) == 2 and out == "" and not (tmp_path / "none.json").exists()
    assert err.count("translation failed (exit 71): nmt: out of memory; see") == 2


@pytest.mark.parametrize("change", ["a word more", "a line less"])
def test_a_translation_that_somebody_edited_is_neither_scored_nor_lost(
    change: str,
    made: Made,
    jobs: list[LoggedCommand],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [*made.runs("absolute-seed1"), *made.test("edited"), "--no-attention"]
    words += ["--samples", "40", "--device", "cpu"]
    assert report.main(words) == 0
    kept = made.root / "absolute-seed1/translations/edited.txt"
    before = kept.read_bytes()
    edited = b"Better." + before if change == "a word more" else before.split(b"\n", 1)[1]
    kept.write_bytes(edited)
    with monkeypatch.context() as patch:
        patch.setattr(translations, "run_all", refuse_commands)
        for more in ([], ["--joined", str(made.root / "joined")]):
            capsys.readouterr()
            assert report.main([*words, *more]) == 65
            out, err = capsys.readouterr()
            assert out == "" and err.count("\n") == 1
            assert f"{kept}: not as nmt-translate wrote it; move it away" in err
    assert kept.read_bytes() == edited
    kept.rename(kept.with_name("mine.txt"))
    jobs.clear()
    assert report.main(words) == 0
    assert kept.read_bytes() == before and len(jobs) == 1


def test_the_paper_s_numbers_beside_ours(
    made: Made, jobs: list[LoggedCommand], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, three = made.runs("absolute-seed1", "absolute-seed2", "relative_seed1")
    words = [f"absolute 100={one}", two, f"relative 75={three}", *made.test("newstest_all")]
    words += ["--published", "table2", "--no-attention", "--device", "cpu", "--samples", "40"]
    assert report.main([*words, "--json", str(tmp_path / "a.json")]) == 0
    out = capsys.readouterr().out
    assert "Table 2: test.de and test.en; beside the paper's" in out
    table = out.split("\n\n")[2].split("\n")
    paper = [line.split() for line in table if line.startswith("  paper")]
    assert [line[1:4] for line in paper] == [["31.7", "/", "57.9"], ["31.7", "/", "58.0"]]
    assert "TERCom" in out and "Attention" not in out and "never attended" not in out
    plain = json.loads((tmp_path / "a.json").read_bytes())
    assert plain["profiles"] == []
    first = plain["tests"][0]["rows"][0]["cells"][1]["scores"]
    assert [first[name]["published"] for name in ("BLEU-moses", "TER-moses", "BLEU")] == [
        31.7,
        58.0,
        None,
    ]


def wrong_words(made: Made, tmp_path: Path) -> dict[str, tuple[list[str], int, str]]:
    """Name -> words, exit code, what is said."""
    good, other, test = *made.runs("absolute-seed1", "relative_seed1"), made.test()
    (tmp_path / "short.en").write_text("one line\n")
    (tmp_path / "empty").mkdir()
    short = f"t={made.source},{tmp_path / 'short.en'}"
    return {
        "no run": ([str(tmp_path / "no"), *test], 66, "no: no such directory; name a run"),
        "a file": ([str(made.source), *test], 66, "test.de: not a directory"),
        "empty": ([str(tmp_path / "empty"), *test], 65, "empty: no run (it has no config.json"),
        "stopped": ([good, *made.runs("stopped"), *test], 65, "stopped: at step 3 of 4, not"),
        "sides": ([good, "--test", short], 65, "has 20 lines, but"),
        "sides joined": (
            [good, "--test", short, "--joined", str(tmp_path / "j")],
            65,
            "short.en has 1; line N",
        ),
        "no text": ([good, "--test", f"t=nowhere,{made.reference}"], 66, "nowhere: no such file"),
        "test": ([good, "--test", "a/b=c,d"], 2, "--test a/b=c,d: expected NAME=SRC,REF"),
        "one side": ([good, "--test", f"t={made.source}"], 2, "expected NAME=SRC,REF"),
        "same test": ([good, *test, *test], 2, "toy: two tests of this name"),
        "same run": ([good, good, *test], 2, "the same config and seed as"),
        "label": ([f"a={good}", f"a={other}", *test], 2, "a: "),
        "names": ([f"a={good}", f"b={good}", f"c={other}", *test, "--published", "table2"], 2,
                  "--published table2: of the test newstest_all; add --test newstest_all=SRC,REF"),
        "systems": ([good, *made.test("concat_seq"), "--published", "table3"], 2,
                    "no system is called as one of the paper's; give LABEL=RUN with one of absol"),
        "table": ([good, *test, "--published", "table7"], 2, "--published table7: choose from"),
        "metric": ([good, *test, "--metric", "BLUE"], 2, "no metric 'BLUE'"),
        "bounds": ([good, *test, "--bounds", "9,3"], 2, "--bounds 9,3"),
        "samples": ([good, *test, "--samples", "3"], 2, "--samples: 3: expected an integer"),
        "place": ([good, *test, "--json", f"{tmp_path / 'short.en'}/x.json"], 73, "short.en"),
    }  # fmt: skip


WRONG = (
    *("no run", "a file", "empty", "stopped", "sides", "sides joined", "no text", "test"),
    *("one side", "same test", "same run", "label", "names", "systems", "table", "metric"),
    *("bounds", "samples", "place"),
)


@pytest.mark.parametrize("which", WRONG)
def test_refused_before_the_first_job(
    which: str,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(translations, "run_all", refuse_commands)
    words, code, said = wrong_words(made, tmp_path)[which]
    assert report.main([*words, "--device", "cpu"]) == code
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == ""


def test_no_wrong_word_is_forgotten(made: Made, tmp_path: Path) -> None:
    assert set(WRONG) == set(wrong_words(made, tmp_path))


def test_runs_of_one_config_are_one_system(made: Made) -> None:
    def named(name: str, label: str | None = None) -> FinishedRun:
        return finished(label, made.root / name, "cpu")

    one, two, three = map(named, ("absolute-seed1", "absolute-seed2", "relative_seed1"))
    groups = systems.grouped([two, three, one])
    assert [group.label for group in groups] == ["absolute", "relative"]
    assert [planned.settings.seed for planned in groups[0].runs] == [1, 2]
    apart = systems.grouped([one._replace(label="a"), two._replace(label="b")])
    assert [group.label for group in apart] == ["a", "b"]
    joins = systems.grouped([one._replace(label="a"), two])
    assert [(group.label, len(group.runs)) for group in joins] == [("a", 2)]
    with pytest.raises(UserError, match=r"two configs \(corpus: "):
        systems.grouped([one._replace(label="a"), two._replace(label="a", fingerprint="another")])
    corpora = systems.grouped([one, two._replace(fingerprint="another", directory=made.root / "b")])
    assert [group.label for group in corpora] == ["absolute", "b"]


def test_settings_that_change_nothing_do_not_part_runs(made: Made) -> None:
    one = finished(None, made.root / "absolute-seed1", "cpu")
    frozen = json.loads((made.root / "absolute-seed2" / "config.json").read_bytes())
    copy = made.root.parent / "elsewhere"
    if not copy.exists():
        shutil.copytree(made.root / "absolute-seed2", copy)
    for group, key, value, same in (
        ("trainer", "device", "cuda", True),
        ("trainer", "log_every", 7, True),
        ("data", "cache", "another/place", True),
        ("decode", "window", 3, True),
        ("decode", "beam_size", 3, False),
        ("trainer", "max_steps", 8, False),
        ("model", "dropout", 0.5, False),
    ):
        changed = {**frozen, group: {**frozen[group], key: value}}
        (copy / "config.json").write_bytes(manifest.dump(changed))
        two = finished(None, copy, "cpu")
        assert two.settings.trainer.device == "cpu"
        assert len(systems.grouped([one, two._replace(label="x" * (not same) or None)])) == 2 - same
        assert (systems._config(one) == systems._config(two)) == same, key


def test_tables_say_who_translates_what(
    made: Made, jobs: list[LoggedCommand], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for the paper's Table 1, where half of the systems know another language."""
    groups = systems.grouped([finished(None, made.root / name, "cpu") for name in list(RUNS)[:3]])
    tests = [
        ParallelFiles(name, "the same twice", made.source, made.reference)
        for name in ("left", "right")
    ]
    tables = [
        PaperTable("Table L", "left", "left", [0], ["exact"], False, False),
        PaperTable("Table R", "right", "right", [1], ["BLEU", "chrF2"], False, True),
    ]
    options = ReportOptions([20], 40, 1, attention=True)
    made_report = reports.report("T", "c", ["Note."], groups, tests, tables, options)
    done = [(job.arguments[0].split("/")[-3], Path(job.arguments[3]).name) for job in jobs]
    assert sorted(done) == [
        ("absolute-seed1", "left.txt"),
        ("absolute-seed2", "left.txt"),
        ("relative_seed1", "right.txt"),
    ]
    plain = made_report.to_json()
    left, right = plain["tests"]
    assert [metric["name"] for metric in left["metrics"]][:2] == ["exact", "BLEU"]
    assert [bool(cell["scores"]) for cell in left["rows"][-1]["cells"]] == [True, False]
    assert [bool(cell["scores"]) for cell in right["rows"][-1]["cells"]] == [False, True]
    assert right["rows"][-1]["cells"][1]["scores"]["BLEU"]["p"] is None  # the first that is there
    assert [row["name"] for row in left["rows"]] == ["0-20", "over 20", "all"]
    assert [cell["beyond"] for cell in left["rows"][1]["cells"]] == [True, False]
    assert left["examples"] == [] and {p["system"] for p in plain["profiles"]} == {0, 1}
    out = text.tables(made_report)
    assert "Note." in out and "Table L: left" in out and "source lengths" in out.split("Table R")[1]
    with pytest.raises(UserError, match="Table L: no metric 'BLEU2'; choose from BLEU, "):
        bad = [replace(tables[0], metrics=["BLEU2"])]
        reports.report("T", "c", [], groups, tests, bad, options)
    with pytest.raises(UserError, match="Table L: no such table in the paper"):
        bad = [replace(tables[0], published=True)]
        reports.report("T", "c", [], groups, tests, bad, options)


def test_lengths_of_other_pieces_are_not_marked(
    made: Made, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Lengths are counted as the first system of a test does; others may cut words otherwise."""
    (group,) = systems.grouped([finished(None, made.root / "relative_seed1", "cpu")])
    one = reports._facts(group.runs[0])
    side = one.segmenter.to_json()

    class Other:
        def to_json(self) -> dict[str, Any]:
            return {**side, "codes": "others"}

        def encode(self, line: str) -> list[str]:
            return list(line)

    known = [one, one._replace(segmenter=Other()), one]  # type: ignore[arg-type]
    files = ParallelFiles("t", "", made.source, made.reference)
    line = "der hund sieht"
    first = ReportedTest(files, [line], ["x"], None, [0, 1], "en")
    second = first._replace(systems=[1, 2])
    assert reports._longest(first, known) == [one.longest, None, None]
    assert reports._longest(second, known) == [None, one.longest, None]
    assert reports._lengths(first, known) == [len(one.segmenter.encode(line))] != [len(line)]
    assert reports._lengths(second, known) == [len(line)]
    named = [group._replace(label=label) for label in ("a", "b", "c")]
    lines = {(group.runs[0].directory, "t"): ["x"]}
    options = ReportOptions([20], 40, 1)
    translated = reports._test(first, named, [], known, lines, options)
    shown = reports._systems(named, [translated], known)
    assert [system.longest_trained for system in shown] == [one.longest, None, None]
    assert [record.getMessage()[:1] for record in caplog.records] == ["b", "c"]


def test_one_process_for_each_gpu(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(device: str) -> list[KeptTranslation]:
        (group,) = systems.grouped([finished(None, made.root / "absolute-seed1", device)])
        return [KeptTranslation(group.runs[0], ParallelFiles("t", "", made.source, made.reference))]

    monkeypatch.setattr(reports, "gpus", lambda: ["0", "1"])
    found = [reports._at_once(kept(device), 8) for device in ("cpu", "auto", "cuda")]
    assert found == [8, 2, 2] and reports._at_once(kept("cuda"), 1) == 1
    monkeypatch.setattr(reports, "gpus", list)
    assert reports._at_once(kept("auto"), 8) == 8
