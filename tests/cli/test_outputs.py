"""Every file that a command writes: tried before the work, and written where others fail."""

import errno
import os
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

from nmt.cli import evaluate
from nmt.cli.output import write_outputs
from nmt.errors import Exit, UserError
from nmt.system import atomic, manifest
from nmt.system.outputs import check_writable, text_writer
from tests.evaluation.made_up import noisy, references

OUTPUTS = {  # option -> command; OUT stands for the output, and may be a directory for some
    "evaluate -o": "evaluate model --source src --reference ref -o OUT.json",
    "evaluate --output-dir": "evaluate model --source src --reference ref --output-dir OUT",
    "translate -o": "translate model src -o OUT",
    "average -o": "average model model -o OUT",
    "export DIR": "export_model model OUT --to marian",
    "import MODEL": "import_model model OUT",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with texts and what passes for a model; any work is a failure of the test."""
    right = references(40, longest=12)
    for name, lines in (("src", right), ("ref", right), ("a.txt", noisy(right, 0.3))):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ends_so(number: int, patch: pytest.MonkeyPatch) -> None:
    """Let every block that is written meet an error of the system."""

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    patch.setattr(os, "fsync", fail)


@pytest.mark.parametrize("option", OUTPUTS)
def test_what_cannot_be_written_is_refused_before_the_work(
    option: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Work would end with another code: what passes for a model is none."""
    before = sorted(place.rglob("*"))

    def refused(out: str, said: str) -> None:
        module, *words = OUTPUTS[option].replace("OUT", out).split()
        code, (shown, err) = import_module(f"nmt.cli.{module}").main(words), capfd.readouterr()
        assert (code, shown) == (Exit.CANT_CREATE, ""), err
        assert err.startswith("nmt: ") and err.count("\n") == 1 and said in err, err
        assert sorted(place.rglob("*")) == before

    refused("src/out", "src")
    with monkeypatch.context() as patch:
        ends_so(errno.ENOSPC, patch)
        refused("out", f": {os.strerror(errno.ENOSPC)}; ")


def full(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the disk be full when files of these names are to get their place."""
    replace = os.replace

    def failing(old: Path, new: Path) -> None:
        if Path(new).name in names:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(old, new)

    patch.setattr(os, "replace", failing)


FILES = ["-o", "new/s.json", "-o", "new/s.svg", "--output-dir", "kept"]


@pytest.mark.parametrize("lost", [("s.svg",), ("s.json", "model.txt")])
def test_a_disk_that_fills_costs_only_what_it_does_not_hold(
    lost: tuple[str, ...],
    place: Path,
    copying: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(copying, "model", dirs_exist_ok=True)
    words = ["model", "--source", "src", "--reference", "ref", "--samples", "40"]
    assert evaluate.main(words) == 0
    table = capfd.readouterr().out
    full(monkeypatch, *lost)
    code = evaluate.main([*words, *FILES])
    out, err = capfd.readouterr()
    assert (code, out) == (Exit.IO, table)
    last = err.split("\n")[-2]
    assert last.startswith("nmt: ") and last.endswith("; all else is written")
    assert [name for name in lost if f"{name}: No space left on device" in last] == [*lost]
    written = {path.name for path in [*place.glob("new/*"), *place.glob("kept/*")]}
    assert written == {"s.json", "s.svg", "model.txt"} - {*lost}


def test_files_are_written_though_the_reader_of_the_table_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    path = tmp_path / "new" / "a"
    with os.fdopen(writer, "w", encoding="utf-8") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        with pytest.raises(BrokenPipeError):
            write_outputs(
                "table\n", (path, text_writer(lambda: "numbers\n")), (None, text_writer(lambda: ""))
            )
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)
    assert path.read_text(encoding="utf-8") == "numbers\n"


def test_an_error_names_the_file_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_so(errno.ENOSPC, monkeypatch)
    for act in (
        lambda path: atomic.replace(path, b"data"),
        lambda path: manifest.write(path, [("a", b"data")]),
    ):
        with pytest.raises(OSError) as error:
            act(tmp_path / "named")
        assert error.value.filename == str(tmp_path / "named")
    path = tmp_path / "named"
    for file, directory in ((path, None), (None, path)):
        with pytest.raises(UserError, match=f"^{path}: No space"):
            check_writable([file], [directory])
    assert not [*tmp_path.iterdir()]
