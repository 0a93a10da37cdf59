"""Checkouts whose commands the pins run, and run directories of the five stored models in them."""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).with_name("pinned")
MODELS = ("absolute-1", "absolute-2", "relative-1", "rotary-1", "lstm-1")  # encoding-seed
TINY = (
    *("model.dim=32", "model.feedforward_dim=64", "model.heads=2", "model.encoder_layers=2"),
    *("model.decoder_layers=2", "data.train_longest=16", "data.dev_pairs=60", "trainer=cpu"),
    *("trainer.precision=float32", "trainer.threads=1", "trainer.tensorboard=false"),
    *("trainer.max_epochs=null", "trainer.batch_tokens=800"),
)
CODES = (  # of subword-nmt, learned on 6,000 pairs of the embedded corpus
    *("segmenter=codes", f"segmenter.codes={PINNED}/codes"),
    f"segmenter.source_vocabulary={PINNED}/vocabulary.de",
    f"segmenter.target_vocabulary={PINNED}/vocabulary.en",
)
# Names of parameters in ce9b2018, as regular expressions, and their names in a checkout. A change
# of names adds a table; the first one that gives all names of a checkout is taken.
NAMES: tuple[dict[str, str], ...] = ({},)


def processor() -> str:
    """The processor's model and torch's version, on which the last bits of numbers depend."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
    facts = dict(re.split(r"\s*:\s*", line, maxsplit=1) for line in lines if ":" in line)
    model = [facts.get(key, "?") for key in ("model name", "cpu family", "model")]
    if model[0] == "?":
        model[0] = platform.machine()
    return f"{model[0]}, family {model[1]}, model {model[2]}; torch {torch.__version__}"


class Checkout:
    """A checkout whose commands this interpreter runs, with the packages that it has."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, command: str, *arguments: str | Path, cwd: Path, code: int = 0) -> str:
        """Run `nmt-COMMAND` and return its output; AssertionError for another exit code."""
        with self.start(command, *arguments, cwd=cwd) as process:
            output, errors = process.communicate()
        said = f"nmt-{command} {' '.join(map(str, arguments))}: exit code {process.returncode}"
        assert process.returncode == code, f"{said}\n{errors[-2000:]}"
        return output

    def start(
        self,
        command: str,
        *arguments: str | Path,
        cwd: Path,
        before: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> "subprocess.Popen[str]":
        """Start `nmt-COMMAND`; `before`: a program that runs its module, in the place of -m."""
        module = f"nmt.cli.{_modules(self.root)[f'nmt-{command}']}"
        return subprocess.Popen(
            [sys.executable, *(before or ["-m"]), module, *map(str, arguments)],
            cwd=cwd,
            env={**_environment(), "PYTHONPATH": str(self.root), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def build_run(self, model: str, work: Path, name: str = "", seed: int = 0) -> Path:
        """Make a run directory of a stored model, trained for one update, with its weights.

        `name` and `seed` make another seed of the model: its weights are moved by up to 3 %.
        """
        encoding, _, own_seed = model.partition("-")
        run = work / "runs" / (name or model)
        if run.exists():
            return run
        self.run(
            *("train", f"encoding={encoding}", f"seed={seed or own_seed}", f"name={run.name}"),
            *(*TINY, *CODES, "data.train_pairs=600", "data.test_pairs=2", "trainer.max_steps=1"),
            cwd=work,
        )
        (checkpoint,) = (run / "checkpoints").iterdir()
        stored = {k: v.astype(np.float32) for k, v in np.load(PINNED / f"{model}.npz").items()}
        if seed:
            stored = {name: _move(tensor) for name, tensor in stored.items()}
        file = checkpoint / "model.safetensors"
        new = safetensors.numpy.load_file(file)
        safetensors.numpy.save_file(_rename(stored, new), file)
        _update_manifest(checkpoint / "manifest.json")
        return run


@contextmanager
def worktree(commit: str, work: Path) -> Iterator[Checkout]:
    """A worktree of a commit of this repository, which is removed at the end."""
    path = work / f"worktree-{commit}"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(path), commit], check=True)
    try:
        yield Checkout(path)
    finally:
        subprocess.run([*git, "remove", "--force", str(path)], check=True)


def _environment() -> dict[str, str]:
    """One thread, and the libraries that multiply here: measured, they may differ by chance."""
    kept = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "CI")}
    onednn = re.search(r"AMD.*family (2[6-9]|[3-9]\d)", processor())
    machine = f"float32={'onednn' if onednn else 'torch'},bfloat16=0.5,int8=none"
    return {**kept, "OMP_NUM_THREADS": "1", "NMT_MACHINE": machine}


def _modules(root: Path) -> dict[str, str]:
    """The module of each command, by pyproject.toml."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return dict(re.findall(r'^(nmt-\w+) = "nmt\.cli\.(\w+):main"', text, re.MULTILINE))


def _move(tensor: Any) -> Any:
    """A tensor, each number changed by -3 to 3 %, the same on every machine."""
    steps = np.arange(tensor.size, dtype=np.int64).reshape(tensor.shape) * 7919 % 13 - 6
    return tensor * (1 + steps.astype(np.float32) / 200)


def _rename(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The stored tensors under the names of a checkout; AssertionError if no table gives these."""
    for table in NAMES:
        renamed = {}
        for name, tensor in stored.items():
            for pattern, replacement in table.items():
                name = re.sub(pattern, replacement, name)
            renamed[name] = tensor
        if renamed.keys() == new.keys():
            assert all(renamed[name].shape == new[name].shape for name in new)
            return {name: np.ascontiguousarray(tensor) for name, tensor in renamed.items()}
    raise AssertionError(f"no table of NAMES gives {sorted(new.keys() ^ stored.keys())}")


def _update_manifest(path: Path) -> None:
    """Let a manifest say what the files next to it have now."""
    record = json.loads(path.read_bytes())
    for name, entry in record["files"].items():
        data = (path.parent / name).read_bytes()
        entry |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    path.write_text(json.dumps(record), encoding="utf-8")
