"""What is typed wrong gets one line and its exit code, never a trace."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmt.cli import (
    average,
    diagnose,
    encodings,
    evaluate,
    export_model,
    import_model,
    prepare,
    score,
    train,
    translate,
)
from nmt.cli.streams import prepare_standard_streams

COMMANDS = {
    "average": average.main,
    "diagnose": diagnose.main,
    "encodings": encodings.main,
    "evaluate": evaluate.main,
    "export": export_model.main,
    "import": import_model.main,
    "prepare": prepare.main,
    "score": score.main,
    "train": train.main,
    "translate": translate.main,
}
LONG = "n" * 300
WRONG: list[tuple[str, Sequence[str], int, str]] = [
    ("train", ["encoding=[absolute,ldpe]"], 2, "absolute is in it twice"),
    ("train", ["encoding.absolute.layer=[0]"], 2, "did you mean layers?"),
    ("train", ["encoding=[relative,composite]"], 2, "they share tau (16, 8); give tau=..."),
    ("translate", [], 2, "the following arguments are required: MODEL; see --help"),
    ("train", ["größe=1"], 2, "größe=1: not KEY=VALUE"),
    ("train", ["early_stopping=8"], 2, "did you mean trainer.early_stopping?"),
    ("train", ["data=files", "data.root=größe"], 2, "as in \"data.root='...'\""),
    ("train", ["data=files", "data.root='größe'"], 66, "größe/train.de: no such file"),
    ("train", ["data=files", f"data.root={LONG}", "name=n"], 66, "train.de: File name too long"),
    ("train", [f"name={LONG}"], 73, "File name too long"),
    ("train", ["data=files", "data.root=\udcff"], 2, r"data.root=\xff: not UTF-8"),
    ("train", ["data.rooot=\x1b[2J"], 2, r"data.rooot=\x1b[2J: not KEY=VALUE"),
    ("export", ["m", "d", "--to=marian", "decode.precision=int8"], 2, "choose it by --precision"),
    ("train", ["--config-dir", "nowhere"], 2, "--config-dir: name a directory of your own op"),
    ("train", ["model.encoder_layers=1000000"], 2, "encoder_layers=1000000: must be from 1"),
    ("evaluate", ["x"], 66, "x: no such file or directory"),
    ("translate", ["m", "--n-best", "9999"], 2, "--n-best: 9999: expected an integer from 1 to"),
]


@pytest.mark.parametrize(
    ("name", "words", "code", "said"), WRONG, ids=[" ".join([n, *w])[:60] for n, w, *_ in WRONG]
)
def test_wrong_words_get_one_line_and_their_code(
    name: str,
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert COMMANDS[name](words) == code
    out, err = capsys.readouterr()
    assert said in err and not out
    assert err.startswith("nmt: ") and err.count("\n") == 1
    assert "Traceback" not in err and re.fullmatch(r"[^\x00-\x1f\x7f-\x9f]*\n", err)


def test_the_resolved_config_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--cfg", "job", "--resolve", "runs=there"]) == 0
    out = capsys.readouterr().out
    assert "runs: there" in out and "${" not in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_other_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMANDS[name](["--nonsense"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("nmt: ") and err.endswith("; see --help\n")


PAGES = """
import sys
from importlib import import_module
BY_HYDRA = ["nmt.cli.prepare", "nmt.cli.train"]
for module in sorted(sys.argv[1:], key=BY_HYDRA.__contains__):
    try:
        import_module(module).main(["--help"])
    except SystemExit as end:  # argparse
        assert not end.code
    assert module in BY_HYDRA or "hydra" not in sys.modules, module
import_module("nmt.cli.train").main(["--help", "segmenter"])
import_module("nmt.cli.encodings").main([])
large = {"torch", "sacrebleu", "numpy", "matplotlib"} & {*sys.modules}
assert not large, large
"""


def test_help_and_the_list_of_encodings_import_no_large_library() -> None:
    modules = [main.args[0].__module__ for main in COMMANDS.values()]
    done = subprocess.run(
        [sys.executable, "-c", PAGES, *modules], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--version") == len(COMMANDS)
    for shown in ("MODEL [MODEL ...] [INPUT]", "decode.beam_size", "--reference REF"):
        assert shown in done.stdout


def shell(script: str, where: Path, **environment: str) -> tuple[int, str, str]:
    """Run a line of a shell in which `nmt NAME` starts a command; its code, stdout and stderr."""
    start = f'nmt() {{ module=$1; shift; "{sys.executable}" -m "nmt.cli.$module" "$@"; }}; '
    ended = subprocess.run(
        ["bash", "-c", start + script],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


ROOT = Path(__file__).parent.parent.parent
STREAMS: list[tuple[str, int, str]] = [
    ("nmt translate . <&-", 66, "nmt: stdin is closed; name a file to read\n"),
    ("nmt train --help >&-", 74, "nmt: stdout is closed; send it somewhere, as in > FILE\n"),
    ("nmt encodings >/dev/full", 74, "nmt: output: No space left on device\n"),
    ("nmt train encoding=relativ 2>&-", 2, ""),
]


@pytest.mark.parametrize(("script", "code", "err"), STREAMS, ids=[s for s, *_ in STREAMS])
def test_closed_streams(script: str, code: int, err: str, tmp_path: Path) -> None:
    assert shell(script, tmp_path) == (code, "", err)


def test_what_stdout_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    prepare_standard_streams()
    ascii_only.write("größe")
    ascii_only.flush()
    assert ascii_only.buffer.getvalue() == rb"gr\xf6\xdfe"
