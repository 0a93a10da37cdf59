"""nmt-diagnose: its numbers are those of the commands that it proposes."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from nmt import modeldir
from nmt.cli import diagnose, translate
from nmt.evaluation.diagnose import Diagnosis, Row, render
from nmt.evaluation.lost import LOST, lost_text
from nmt.evaluation.report import Figure
from nmt.evaluation.systems import read_systems
from nmt.text.lines import read_text
from tests.evaluation.conftest import TinyRuns
from tests.evaluation.made_up import score

SEARCH = ["decode.alpha=0.5", "decode.target_language=null"]


def row(screen: str, name: str) -> list[str]:
    """The cells of a line of a table, without units."""
    (line,) = [line for line in screen.split("\n") if line.startswith(f"  {name}  ")]
    return line.removeprefix(f"  {name}").replace("%", "").split()


def test_commands_give_what_the_table_says(
    runs: TinyRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in-parts.txt").write_text("written earlier\n")
    words = [*runs.paths("absolute-seed1"), str(runs.source), "--reference", str(runs.reference)]
    assert diagnose.main([*words, *SEARCH, "--samples", "40", "--device", "cpu"]) == 0
    screen = capsys.readouterr().out
    lines = [line.strip() for line in screen.split("\n")]
    trained = int(re.findall(r"sources of up to (\d+) pieces", screen)[0])
    encode = modeldir.load(Path(words[0])).source.segmenter.encode
    sources, references = read_text(runs.source), read_text(runs.reference)
    long = [i for i, line in enumerate(sources) if len(encode(line)) > trained]
    assert row(screen, "longer")[0] == str(len(long)) and 5 < len(long) < len(sources)
    lost = lost_text([references[i] for i in long])
    for name in ("in parts", "not too short", "covering the source"):
        command = shlex.split(lines[lines.index(f"{name}:") + 1])
        assert command[:2] == ["nmt-translate", words[0]] and set(SEARCH) <= set(command)
        assert translate.main(command[1:]) == 0
        output = read_text(tmp_path / command[command.index("-o") + 1])
        share = score(lost, [output[i] for i in long])
        assert row(screen, name)[0] == f"{100 * share:.1f}"
    assert (tmp_path / "in-parts.txt").read_text() == "written earlier\n"
    ratios = [line for line in lines if "decode.min_length_ratio" in line]
    assert all("decode.min_length_ratio=0.5" in line for line in ratios)  # not above the largest


def diagnosis_of(place: str | Path, reference: str | None) -> Diagnosis:
    (model,) = read_systems([str(place)])[0].models
    few = Row("few", 2)
    search = Row("as the model searches", 2, {}, ["decode.source_language=>>fra<<"])
    files = Path("de"), None if reference is None else Path(reference)
    return Diagnosis(model, *files, 30, 30, 60, few, few, [search])


def test_training_commands_are_complete_and_take_no_name_twice(
    runs: TinyRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/longer").mkdir(parents=True)
    absolute, relative = runs.paths("absolute-seed1", "relative_seed1")
    go_on = "nmt-train experiment=lengthen"
    screen = render(diagnosis_of(absolute, None))
    assert "'decode.source_language=>>fra<<'\n" in screen  # for a shell
    assert f"{go_on} parent={absolute} name=longer-2\n" in screen
    rate = f"{modeldir.read_settings(Path(absolute)).optim.lr:g}"
    assert f"{go_on} parent={absolute} encoding=rotary optim.lr={rate} name=replaced\n" in screen
    assert "encoding=rotary" not in render(diagnosis_of(relative, None))
    model = next((runs.root / "absolute-seed1/checkpoints").iterdir())
    shutil.copytree(model, "model")  # whose corpus and training are not known
    screen = render(diagnosis_of("model", "en"))
    tests = "data=files data.root=CORPUS data.test_source=de data.test_target=en"
    assert f"{go_on} parent=model {tests} name=longer-2\n" in screen
    assert "optim.lr=PEAK" in screen and "\n  PEAK: " in screen and "\n  CORPUS: " in screen


def test_a_setting_is_recommended_if_its_interval_is_apart(runs: TinyRuns) -> None:
    def screen(low: float) -> str:
        bounds = {"as the model searches": (low, 0.92), "in parts": (0.45, 0.55)}
        tried = []
        for name, (lower, upper) in bounds.items():
            mean = (lower + upper) / 2
            figure = Figure("", "", 64, "", LOST.name, mean, low=lower, high=upper)
            tried.append(Row(name, 64, {LOST.name: figure}))
        diagnosis = diagnosis_of(runs.paths("absolute-seed1")[0], "en")
        return render(diagnosis._replace(tried=tried))

    assert "Least is lost in parts: 40.0 points less." in screen(0.88)
    assert "Least is lost" not in screen(0.54)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("{run}", "text", "decode.length=forced"), 2, "reads length; a diagnosis is"),
        (("{run}", "blank"), 65, "blank: no line has text; nothing to diagnose"),
        (("{run}/best", "text"), 2, "best: is a file; name the directory of a run or model"),
    ],
)
def test_what_cannot_be_diagnosed(
    words: tuple[str, ...],
    code: int,
    message: str,
    runs: TinyRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("blank").write_text("\n \n", encoding="utf-8")
    Path("text").write_text("ein Haus\n", encoding="utf-8")
    (run,) = runs.paths("absolute-seed1")
    assert diagnose.main([word.format(run=run) for word in words]) == code
    out, err = capsys.readouterr()
    assert not out and message in err and err.count("\n") == 1
