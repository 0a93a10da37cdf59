"""nmt-evaluate of runs: which are one system, what is refused, and the whole on tiny models."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

import nmt
from nmt import modeldir
from nmt.cli import diagnose as diagnosis
from nmt.cli import evaluate as command
from nmt.errors import UserError
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.run import evaluate, read
from nmt.evaluation.systems import System, group_by_config, read_model_facts, read_systems
from nmt.evaluation.testsets import ParallelFiles
from nmt.text.lines import read_text
from tests.evaluation.conftest import TinyRuns


def translations(runs: TinyRuns) -> dict[Path, int]:
    """When each translation that lies beside a run was written."""
    files = runs.root.glob("*/translations/*.txt")
    return {path: path.stat().st_mtime_ns for path in files}


def test_the_whole_and_again(
    runs: TinyRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = translations(runs)
    files = {kind: tmp_path / "out" / f"report.{kind}" for kind in ("json", "tsv", "md")}
    paths = runs.paths("absolute-seed2", "relative_seed1", "absolute-seed1")
    words = [*paths, *runs.test(), "--bounds", "9,20", "--samples", "40", "--device", "cpu"]
    words += ["--attention", "--perplexity", "--metric", "BLEU"]
    outputs = [word for path in files.values() for word in ("-o", str(path))]
    assert command.main([*words, *outputs, "--output-dir", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    after = translations(runs)
    assert len(after.keys() - before) == 3
    assert out.startswith("Translation by source length\n\ntoy, 20 pairs; source length in subword")
    assert "\nBLEU  (detokenised, cased" in out and "\nunattended source, %  (" in out
    assert "  ± 2 seeds" in out and "  95% " in out and "^" in out
    assert "greedy search" in out and "of the first run" in out
    assert err.endswith("".join(f"wrote {path}\n" for path in (*files.values(), tmp_path / "out")))

    plain = json.loads(files["json"].read_bytes())
    assert [each["label"] for each in plain["systems"]] == ["absolute", "relative"]
    first, second = plain["systems"]
    assert [run["seed"] for run in first["runs"]] == [1, 2] and first["runs"][0]["step"] == 4
    trained = modeldir.load(runs.root / "relative_seed1")
    assert second["parameters"] == sum(p.numel() for p in trained.model.parameters())
    assert second["encoding_parameters"] > first["encoding_parameters"] == 0
    assert second["longest_trained"] == trained.facts["longest_source"]
    assert second["runs"][0]["dev_perplexity"] == trained.facts["dev_perplexity"]
    assert plain["about"]["files"][f"toy source {runs.source}"] and plain["seed"] == 12345
    bleu, perplexity = (
        figure
        for figure in plain["figures"]
        if [figure["system"], figure["group"]] == ["absolute", "all"]
        and figure["metric"] in ("BLEU", "perplexity")
    )
    sources, right = read_text(runs.source), read_text(runs.reference)
    texts = [read_text(tmp_path / "out" / f"absolute-seed{seed}.txt") for seed in (1, 2)]
    each = [BLEU().corpus_score(text, [right]).score for text in texts]
    assert bleu["seeds"] == pytest.approx(each) and bleu["mean"] == pytest.approx(sum(each) / 2)
    scored = [nmt.score(nmt.load(path), sources, right) for path in (paths[2], paths[0])]
    each = [math.exp(-sum(s.log_prob for s in of) / sum(s.length for s in of)) for of in scored]
    assert perplexity["seeds"] == pytest.approx(each) and each[0] != each[1]
    assert len(plain["tests"][0]["examples"]) > 5
    assert len(files["tsv"].read_text().split("\n")) == len(plain["figures"]) + 2

    # the same again translates nothing, and says the same
    assert command.main(words) == 0
    assert translations(runs) == after and capsys.readouterr().out == out

    # joined lines are another text
    joined = [*paths, *runs.test(), "--join", "2", "--samples", "40", "--metric", "BLEU"]
    assert command.main(joined) == 0 and len(translations(runs)) == len(after) + 3
    out = capsys.readouterr().out
    assert "toy, 10 pairs; " in out and "\narrived, %  (" in out and " 2 of 2" in out


WRONG = {  # words, exit code, what is said
    "begun": ("{good} {tmp}/begun {test}", 65, "begun: no checkpoint yet"),
    "folder": ("{root} {test}", 2, "folder of runs; name the runs, as {root}/*"),
    "no corpus": ("{tmp}/model", 2, "model: names no test set; add --reference"),
    "test": ("{good} --test a/b=c,d", 2, "--test a/b=c,d: expected NAME=SRC,REF"),
    "same run": ("{good} {good} {test}", 2, "the same config and seed as"),
    "one file": (
        "{good} {root}/absolute-seed2 absolute-seed1={reference} {test} --output-dir {tmp}/out",
        2,
        "out/absolute-seed1.txt: is read, or written twice",
    ),
    "forced": ("{good} {test} --lost decode.length=forced", 2, "--lost compares with free"),
    "joined": ("{good} {test} --join 2 --columns a={source}", 2, "lines are not joined"),
}


@pytest.mark.parametrize("which", WRONG)
def test_refused_before_the_first_job(
    which: str, runs: TinyRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "begun").mkdir()
    shutil.copy(runs.root / "absolute-seed1/config.json", tmp_path / "begun")
    shutil.copytree(next((runs.root / "relative_seed1/checkpoints").iterdir()), tmp_path / "model")
    places = {"root": runs.root, "tmp": tmp_path, "good": runs.root / "absolute-seed1"}
    places |= {"source": runs.source, "reference": runs.reference}
    words, code, said = WRONG[which]
    arguments = words.format(**places, test=" ".join(runs.test())).split()
    assert command.main([*arguments, "--device", "cpu"]) == code
    out, err = capsys.readouterr()
    assert said.format(**places) in err and err.count("\n") == 1 and out == ""


def test_an_unfinished_run_is_evaluated_on_the_test_set_of_its_corpus_with_a_warning(
    runs: TinyRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = shutil.copytree(runs.root / "absolute-seed1", tmp_path / "stopped")
    config = json.loads((stopped / "config.json").read_bytes())
    config["trainer"]["max_steps"] = 8
    (stopped / "config.json").write_text(json.dumps(config))
    assert command.main([str(stopped), "--samples", "40", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert "stopped: at step 4 of 8, not finished; its best checkpoint so far" in err
    assert "test, 20 pairs; source length in subword pieces" in out and "\nstopped " in out


def test_a_line_that_is_refused_counts_as_an_empty_translation(
    runs: TinyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*runs.paths("absolute-seed1"), *runs.test(), "--samples", "40", "--device", "cpu"]
    assert command.main([*words, "decode.too_long=refuse", "decode.max_source=15"]) == 0
    out, err = capsys.readouterr()
    assert "absolute: " in err and "left empty" in err and "toy, 20 pairs" in out
    count = re.search(r"left empty: (\d+) \(first", err)
    assert count and f"toy with more than 15 pieces: {count[1]}, left empty (absolute)." in out


def test_why_text_is_lost_is_found_by_forced_lengths(
    runs: TinyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    """The models are cut far too early: all that can come back does so with the length."""
    words = [*runs.paths("absolute-seed1"), *runs.test(), "--samples", "40", "--metric", "BLEU"]
    words += ["--device", "cpu", "--lost", "decode.max_length_offset=1"]
    assert command.main(words) == 0
    out = capsys.readouterr().out
    assert "\nlost beyond, %  (" in out and "\nend sign, %  (" in out
    trained = modeldir.load(runs.root / "absolute-seed1")
    right = read_text(runs.reference)
    pieces = [len(trained.target.ids(line)) - 1 for line in right]
    lengths = runs.root / "lengths.txt"
    lengths.write_text("".join(f"{n}\n" for n in pieces))
    options: dict[str, Any] = {"max_length_offset": 1, "length": "forced"}
    (system,) = read_systems(runs.paths("absolute-seed1"))
    before, outputs = translations(runs), []
    for columns in ({}, {"length": lengths}):  # the references' lengths are those of such a file
        evaluation = EvaluationOptions(samples=40, device="cpu", decode=options, columns=columns)
        outputs.append(evaluate([system], [runs.files()], evaluation).tests[0].hypotheses)
    assert outputs[0] == outputs[1]
    assert len(translations(runs)) == len(before) + 1  # of the first --lost had forced ones, too


def test_losses_are_those_of_the_diagnosis_or_a_reason_is_given(
    runs: TinyRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What --lost finds within and beyond the trained length, nmt-diagnose finds, too."""
    plain, model = tmp_path / "report.json", runs.paths("absolute-seed1")
    words = [*model, "--source", str(runs.source), "--reference", str(runs.reference)]
    words += ["--samples", "40", "--device", "cpu"]
    lost = [*words, "--lost", "--metric", "BLEU", "-o", str(plain)]
    assert command.main(lost) == 0
    means = {row["metric"]: row["mean"] for row in json.loads(plain.read_bytes())["figures"]}
    capsys.readouterr()
    texts = [str(runs.source), "--reference", str(runs.reference), "--samples", "40"]
    assert diagnosis.main([*model, *texts, "--device", "cpu"]) == 0
    screen = capsys.readouterr().out
    for name, share in (("up to", means["lost within"]), ("longer", means["lost beyond"])):
        assert re.search(rf"  {name} .* {100 * share:.1f} % +\[", screen)
    without = [word for word in texts if word not in ("--reference", str(runs.reference))]
    assert diagnosis.main([*model, *without, "--device", "cpu"]) == 0
    screen = capsys.readouterr().out
    assert "By attention and length alone" in screen and "add --reference" in screen
    assert re.search(r"  longer +\d+ +\d+\.\d % ", screen) and "lines' translations are" in screen
    assert command.main([*lost, str(runs.reference), "decode.split=sentences"]) == 0
    out, err = capsys.readouterr()
    assert "lost beyond" not in out
    assert "why absolute loses text: decode.split=sentences does not go with" in err
    assert "why test loses text: that needs a model" in err


def test_runs_of_one_config_are_one_system(runs: TinyRuns) -> None:
    one, two, other = runs.paths("absolute-seed1", "absolute-seed2", "relative_seed1")

    def labels(systems: list[System]) -> list[tuple[str, list[int]]]:
        return [(s.label, [model.settings.seed for model in s.models]) for s in systems]

    assert labels(read_systems([two, other, one])) == [("absolute", [1, 2]), ("relative", [1])]
    assert labels(read_systems([f"a={one}", f"b={two}"])) == [("a", [1]), ("b", [2])]
    assert labels(read_systems([f"a={one}", two])) == [("a", [1, 2])]

    def changed(path: str, group: str, key: str, value: object, label: str = "") -> System:
        """A run that was trained with another setting."""
        (system,) = read_systems([path])
        (model,) = system.models
        part = replace(getattr(model.settings, group), **{key: value})
        model = model._replace(settings=replace(model.settings, **{group: part}))
        return system._replace(label=label or str(value), models=[model], is_named=bool(label))

    first = changed(one, "trainer", "device", "cpu")
    for group, key, value, count in (
        ("trainer", "device", "cuda", 1),
        ("trainer", "target", "ctranslate2", 1),
        ("data", "cache", "elsewhere", 1),
        ("decode", "beam_size", 3, 2),
        ("model", "dropout", 0.5, 2),
    ):
        assert len(group_by_config([first, changed(two, group, key, value)])) == count, key
    start = "trainer", "init_from"
    seeds = changed(one, *start, "x/p-seed1"), changed(two, *start, "x/p-seed2")
    assert len(group_by_config([*seeds])) == 1
    assert len(group_by_config([changed(one, *start, "x/p"), changed(two, *start, "x/q")])) == 2
    named = changed(one, *start, "x/p", "both"), changed(two, *start, "x/q", "both")
    assert labels(group_by_config([*named])) == [("both", [1, 2])]
    other_text = named[0].models[0]._replace(fingerprint="of another text")
    with pytest.raises(UserError, match=r"two configs \(corpus: "):
        group_by_config([named[1], named[0]._replace(models=[other_text])])


def test_a_glob_of_runs_may_name_their_logs(
    runs: TinyRuns, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("absolute-seed1", "relative_seed1"):
        (tmp_path / name).symlink_to(runs.root / name)
    for name in ("absolute-seed1.log", "failed-seed1.log"):  # as `nmt-train -m` writes them
        (tmp_path / name).write_text("a line\n")
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    assert [system.label for system in read_systems(paths)] == ["absolute", "relative"]
    assert "failed-seed1.log: a log without a run; left out" in caplog.text
    assert "absolute-seed1.log" not in caplog.text
    (system,) = read_systems([str(tmp_path / "failed-seed1.log")])  # a file of translations
    assert system.file


def test_a_text_of_two_names_is_translated_once(runs: TinyRuns) -> None:
    groups = read_systems(runs.paths("absolute-seed1", "absolute-seed2", "relative_seed1"))
    other, before = runs.root / "other.de", translations(runs)
    other.write_bytes(runs.source.read_bytes().replace(b"e", b"a"))
    tests = [ParallelFiles(name, "", [other], [runs.reference]) for name in ("left", "right")]
    options = EvaluationOptions(bounds=[20], samples=40, device="cpu", metrics=["exact"])
    report = evaluate(groups, tests, options)
    done = sorted(path.parts[-3] for path in translations(runs).keys() - before)
    assert done == ["absolute-seed1", "absolute-seed2", "relative_seed1"]
    left, right = report.tests
    assert left.hypotheses == right.hypotheses and list(map(len, left.hypotheses)) == [2, 1]


def test_lengths_of_other_pieces_are_not_marked(
    runs: TinyRuns, caplog: pytest.LogCaptureFixture
) -> None:
    """Lengths are counted as the first system of a test does; others may cut words otherwise."""
    (group,) = read_systems(runs.paths("relative_seed1"))
    one = read_model_facts(group.models[0].path)
    side = one.segmenter.to_json()

    class Other:
        def to_json(self) -> dict[str, Any]:
            return {**side, "codes": "others"}

        def encode(self, line: str) -> list[str]:
            return list(line)

    known = {"a": one, "b": one._replace(segmenter=Other()), "c": one}  # type: ignore[arg-type]
    systems = [group._replace(label=label, facts=facts) for label, facts in known.items()]
    test = read(runs.files(), systems, EvaluationOptions())
    assert [*test.trained] == [one.longest, None, one.longest]
    assert test.lengths == [len(one.segmenter.encode(line)) for line in read_text(runs.source)]
    assert test.unit == "subword pieces of a"
    assert [record.getMessage()[:1] for record in caplog.records] == ["b"]
    by_reference = EvaluationOptions(lengths="reference")
    references = read_text(runs.reference)
    pieces = read(runs.files(), systems, by_reference)
    assert pieces.lengths == [len(one.target_segmenter.encode(line)) for line in references]
    longest = modeldir.load(runs.root / "relative_seed1").facts["longest_target"]
    assert [*pieces.trained] == [longest] * 3 and longest != one.longest
    words = read(runs.files(), [System("f", [], file=runs.reference)], by_reference)
    assert words.lengths == [len(line.split()) for line in references]
    assert words.unit == "words (no model to count pieces)" and not any(words.trained)


def test_systems_of_several_directions_are_not_compared(runs: TinyRuns) -> None:
    (group,) = read_systems(runs.paths("relative_seed1"))
    (model,) = group.models
    languages = {"source_language": "zho_Hans", "target_language": "eng_Latn"}  # as NLLB has them
    decode = replace(model.settings.decode, **languages)  # type: ignore[arg-type]
    other = model._replace(settings=replace(model.settings, decode=decode))
    facts = read_model_facts(model.path)
    pair = [group._replace(facts=facts), System("zh", [other], facts=facts)]
    files = runs.files()
    with pytest.raises(UserError, match="t: its systems translate de-en, zh-en; compare them"):
        read(files, pair, EvaluationOptions())
    test = read(files, pair, EvaluationOptions(target_language="cmn_Hans"))
    assert [*test.columns] == [0, 1] and test.language == "zh"
