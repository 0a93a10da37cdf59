"""The commands of README.md and docs/*.md, run in their order through a shell, at small sizes."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest

from nmt.toy import draw
from tests.exchange import m2m100_models, marian_models
from tests.pages import PAGES, ROOT, commands, text_of

SCRIPTS: dict[str, str] = tomllib.loads(text_of("pyproject.toml"))["project"]["scripts"]
ADDING = "needs the files of its page; tests/test_adding_one.py"
NLLB = "nllb-200-distilled-600M"
NOT_RUN = {  # command -> why this test does not run it
    **dict.fromkeys(commands("docs/adding-an-encoding.md"), ADDING),
    "make demo": "makes an environment of its own; tests/cli/test_whole.py has its two commands",
    ". .venv/bin/activate": "made by make",
    "make wmt19-deen": "downloads gigabytes; tests/scripts/wmt19",
    "make wmt19-zhen": "the same",
    "nmt-train experiment=table2 scale=wmt19": "needs the corpus that make wmt19-deen downloads",
    "hf download Helsinki-NLP/opus-mt-de-en --local-dir opus-mt-de-en": "a download",
    **{c: "of it" for c in commands("docs/exchange.md") if "opus-long" in c},
    "nmt-import opus-2020-02-26 opus --samples in.txt": "tests/exchange/test_marian_npz.py",
    f"hf download facebook/{NLLB} --local-dir {NLLB}": "a download",
    "nmt-import ct2-model imported --trained-length 100 --samples in.txt": "test_ctranslate2_read",
    **{c: "needs numbers of COMET" for c in commands("docs/evaluate.md") if "--scores" in c},
    "make bench": "installs other libraries; scripts.bench: tests/bench/test_bench.py",
    'make bench BENCH="training --model base --rounds 9"': "minutes of full load",
    **{c: "needs a GPU" for c in commands("docs/speed.md") if "--gpu" in c},
    **{c: "a download" for c in commands("docs/speed.md") if "pip" in c},
}
TINY = [
    *("model.dim=16", "model.feedforward_dim=16", "model.heads=2", "model.encoder_layers=2"),
    *("model.decoder_layers=1", "trainer.max_steps=4", "trainer.threads=1"),
    *("trainer.precision=float32", "trainer.device=cpu", "segmenter.merges=60"),
    *("trainer.tensorboard=false", "decode.beam_size=2", "decode.max_length_ratio=1"),
]
TOY = ["data.train_pairs=120", "data.dev_pairs=8", "data.test_pairs=12"]
TABLE = ["seed=1", "samples=40", "attention=false"]
SMALL = {  # command -> options that make it small
    "nmt-train": TINY,
    "nmt-prepare": ["segmenter.merges=60"],
    "nmt-evaluate": ["--samples", "40", "decode.beam_size=1"],
    "nmt-diagnose": ["--samples", "40", "decode.beam_size=1"],
}


def small(command: str) -> str:
    """The command with options that make it small, where it does not name them itself."""
    command = command.replace("data.dev_lines=1000", "data.dev_lines=8")  # of 120 lines
    command = command.replace("glob(*)", "glob(alibi*)")  # two of all encodings
    command = command.replace("none,t5,alibi,rotary,absolute", "none,t5")  # two of five
    words = shlex.split(command)
    more = [*SMALL.get(words[0], [])]
    if words[0] == "nmt-train":
        kinds = ("argos", "multi30k", "scan")
        elsewhere = ("data=", *(f"experiment={kind}" for kind in kinds), "scale=small")
        more += TOY if not any(w.startswith(elsewhere) for w in words) else []
        more += TABLE if any(w.startswith("experiment=table") for w in words) else []
    if words[0] == "nmt-evaluate" and "=" not in words[1]:
        more.remove("decode.beam_size=1")  # of files
    if re.search("(init_from|parent)=|segmenter=unigram|=argos", command):  # learns no merges
        more = [word for word in more if not word.startswith("segmenter.")]
    if "parent=" in command:  # has a shape
        more = [word for word in more if not word.startswith("model.")]
    given = {word.partition("=")[0] for word in words}
    return f"{command} {shlex.join(w for w in more if w.partition('=')[0] not in given)}"


def run_here(command: str) -> None:
    """Run a command of nmt at a small size in this process, which has torch already."""
    name, *words = shlex.split(small(command))
    module, _, main = SCRIPTS[name].partition(":")
    assert getattr(import_module(module), main)(words) == 0, small(command)


def run_in_shell(command: str, where: Path, root: Path) -> None:
    """Run it at a small size, with the package that lies in `root`; it must end well."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    surroundings = {"PATH": places, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        ["bash", "-c", small(command)], cwd=where, env={**os.environ, **surroundings},
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    end = ended.stderr.decode(errors="replace")[-1500:]
    assert ended.returncode == 0, f"{small(command)}\n{end}"


def write_texts(place: Path) -> None:
    """All files that the pages take for granted, from the embedded grammar."""

    def write(stem: str, count: int, seed: str, heads: bool = False) -> None:
        found = draw(count, 4, 14, seed)
        (place / stem).parent.mkdir(parents=True, exist_ok=True)
        for side, ending in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in found)
            (place / f"{stem}.{ending}").write_text(text, encoding="utf-8")
        if heads:
            lines = "".join(f"{drawn.columns()['heads']}\n" for drawn in found)
            (place / f"{stem}.heads").write_text(lines, encoding="utf-8")

    for root, dev, test in (
        ("my/corpus", "dev", "test"),
        ("path/to/multi30k", "val", "test_2016_flickr"),
        ("path/to/manuals", "dev", "test"),
        ("c", "dev", "test"),
    ):
        for part, count in (("train", 120), (dev, 8), (test, 12)):
            write(f"{root}/{part}", count, f"{root}/{part}", heads=root == "c")
    for part in ("train", "dev", "test"):  # not of SCAN, but its endings
        write(f"path/to/scan/{part}", 12 if part == "test" else 60, part)
        for ending, scan in (("de", "command"), ("en", "action")):
            (place / f"path/to/scan/{part}.{ending}").rename(place / f"path/to/scan/{part}.{scan}")
    m2m100_models.make(place / NLLB)
    marian_models.make(place / "opus-mt-de-en")
    write("test", 12, "test")
    write("in", 3, "in", heads=True)
    (place / "in.de").rename(place / "in.txt")
    (place / "begin.txt").write_text("the\n\n\n", encoding="utf-8")
    (place / "lengths.txt").write_text("12\n" * 12, encoding="utf-8")  # a line each of test.de


def test_every_reason_not_to_run_a_command_is_of_one_on_a_page() -> None:
    assert set(NOT_RUN) <= {command for page in PAGES for command in commands(page)}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_work_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", StringIO())
    for command in commands(page):
        if command in NOT_RUN:
            continue
        if command.startswith("nmt-") and not re.search(r"[*?{}|<>$&;]", command):
            run_here(command)
        else:
            run_in_shell(command, tmp_path, ROOT)
