"""nmt-diagnose, on a model that copies 30 pieces and no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt.cli import diagnose as command_line
from nmt.config.settings import Settings
from nmt.decode.search import Step
from nmt.evaluation.diagnose import Diagnosis, Losses, Remedy
from nmt.evaluation.screen import render_diagnosis
from nmt.text.vocab import EOS
from tests.decode.copying import Copying, CopyState, decode, trained
from tests.pretended import pretend

Run = Callable[..., tuple[int, str, str]]
KNOWN = 30  # pieces


class Forgetful(Copying):
    """Ends after 30 pieces."""

    def step(self, tokens: Tensor, state: CopyState) -> Tensor:
        logits = super().step(tokens, state)
        if state.length > KNOWN:
            logits[:, EOS] = 20
        return logits


class NoPenalty:
    """In the place of the coverage penalty, which reads the attention that Forgetful has not."""

    def __init__(self, step: Step, *_: object) -> None:
        self.step, self.rows = step, torch.zeros(0)

    def of_rows(self) -> Tensor:
        return torch.zeros(len(self.rows))

    def __call__(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        self.rows = tokens
        return self.step(tokens, parents)


@pytest.fixture
def command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings_of: Callable[..., Settings],
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Words -> exit code, stdout, stderr; text has 20 lines of 10 words, and 5 of 60."""
    some = trained(KNOWN)
    settings = settings_of()
    settings.decode = decode(max_length_ratio=3.0, batch_tokens=4000, too_long="split")
    model = cast(Any, Forgetful(some.source.vocabulary).eval())
    pretend(monkeypatch, some._replace(model=model, settings=settings))
    monkeypatch.setattr("nmt.decode.torch_engine.CoveragePenalty", NoPenalty)
    monkeypatch.chdir(tmp_path)
    lines = [" ".join(f"w{(i + j) % 40}" for j in range(10 if i < 20 else 60)) for i in range(25)]
    Path("text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    Path("model").mkdir()

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = command_line.main(["model", *words, "--samples", "40"])
        except SystemExit as leaving:  # argparse
            code = int(leaving.code or 0)
        return (code, *capsys.readouterr())

    return run


def row(out: str, name: str) -> list[str]:
    """The cells of a line of a table, without units."""
    (line,) = [line for line in out.split("\n") if line.startswith(f"  {name}  ")]
    return line.removeprefix(f"  {name}").replace("%", "").split()


def test_what_is_lost_and_what_parts_give(command: Run) -> None:
    code, out, err = command("text", "--reference", "text")
    assert code == 0, err
    assert "sources of up to 30 pieces. 5 of 25 lines (20%) are longer; the longest has 60." in out
    assert row(out, "up to 30 pieces")[:2] == ["20", "0.0"]
    lines, share, *_, ratio = row(out, "longer")
    lost = float(share)
    assert lines == "5" and 40 < lost < 60 and ratio == "0.48"  # of characters
    assert f"The long lines lose {lost:.1f} points more than the others." in out
    assert row(out, "as the model searches")[0] == str(lost)
    assert float(row(out, "in parts")[0]) < 5  # characters around the borders are all that is lost
    by_sentences = row(out, "by sentences")  # of which this text has none
    assert by_sentences == row(out, "as the model searches")
    assert "nmt-translate model decode.split=sentences\n" in out
    assert "nmt-translate model decode.max_source=30 decode.too_long=split\n" in out
    assert "nmt-translate model decode.min_length_ratio=0.8\n" in out
    assert "nmt-translate model decode.beam_size=4 decode.coverage_penalty=0.2\n" in out
    assert "experiment=lengthen parent=model data=files data.root=CORPUS name=longer" in out


def test_commands_keep_the_settings_that_were_tried(command: Run) -> None:
    code, out, err = command(
        *("text", "--reference", "text"),
        *("decode.beam_size=2", "decode.max_length_ratio=0.5", "decode.target_language=null"),
    )
    assert code == 0, err
    kept = "decode.beam_size=2 decode.max_length_ratio=0.5 decode.target_language=null "
    assert f"nmt-translate model {kept}decode.max_s" in out
    assert f"{kept}decode.min_length_ratio=0.5\n" in out  # not above it


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("text", "--columns", "heads=text"), "--columns: a diagnosis is of"),
        (("text", "decode.length=forced"), "model: reads length; a diagnosis is"),
        (("blank",), "blank: no line has text; nothing to diagnose"),
    ],
)
def test_what_cannot_be_diagnosed(command: Run, words: tuple[str, ...], message: str) -> None:
    Path("blank").write_text("\n \n", encoding="utf-8")
    code, out, err = command(*words)
    assert code and not out and message in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["absolute", "absolute+relative"])
def test_another_encoding_is_for_models_with_sinusoids(name: str) -> None:
    sinusoids = name == "absolute"
    some = Losses(2)
    remedies = [Remedy("as the model searches", ["decode.source_language=>>fra<<"], some)]
    screen = render_diagnosis(
        Diagnosis("runs/x", "de", True, f"encoding={name}", 30, 30, 60, False, some, some, remedies)
    )
    assert "nmt-translate runs/x 'decode.source_language=>>fra<<'\n" in screen  # for a shell
    assert "experiment=lengthen parent=runs/x name=longer" in screen
    assert ("parent=runs/x encoding=rotary optim.lr=PEAK" in screen) is sinusoids
    assert ("PEAK: the peak learning rate" in screen) is sinusoids
