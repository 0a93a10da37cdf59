"""A corpus of 64 lines and a model of width 16, on which 15 updates take a second."""

import errno
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.nn.modules.module import _global_forward_hooks
from torch.optim.optimizer import _global_optimizer_post_hooks

from nmt.config.settings import Settings, thaw
from nmt.corpus.pairs import Pairs, read_pairs, write_pairs
from nmt.corpus.prepare import Prepared
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import Vocabulary
from nmt.training.directory import Run, open_run
from nmt.training.run import Outcome, fit, outcome_of, refuse_other_data

if TYPE_CHECKING:  # processes of tests import this file, too
    import pytest

LETTERS = "abcdefgh"
EXACT: dict[str, Any] = {
    **{f"model__{which}dropout": 0.0 for which in ("", "attention_", "feedforward_")},
    "trainer__accumulate": 3,  # rank 0 gets two of three batches; each epoch ends with one
    "trainer__max_epochs": 2,
    "trainer__log_every": 1,
}
DRAWN: dict[str, Any] = {
    "encoding": {"absolute": {"at": {"shift": {"k": 5}}}},  # beside dropout
    "trainer__ema": 0.9,
    "trainer__max_epochs": 2,
}
WIDE: dict[str, Any] = {  # 20 MB of gradients, several buckets; sqrt(512) is no whole number
    **EXACT,
    "model__dim": 512,
    "model__feedforward_dim": 512,
    "model__tie": "none",
    "trainer__max_steps": 2,
    "trainer__accumulate": 2,
    "optim__eps": 1e-4,
    "optim__lr": 1e-3,
}


def settings(**changes: Any) -> Settings:
    """Defaults of these tests; `trainer__accumulate=2` changes one key, `encoding=...` a group.

    They are checked once for all who ask for the same.
    """
    known = repr(sorted(changes.items()))
    if known not in CHECKED:
        CHECKED[known] = _checked(changes)
    return deepcopy(CHECKED[known])


CHECKED: dict[str, Settings] = {}


def _checked(changes: dict[str, Any]) -> Settings:
    plain: dict[str, Any] = {
        "seed": 3,
        "data": {
            "name": "tiny", "max_length": 20, "max_line_bytes": 1000,
            "cache": "/home/somebody/cache", "train_source": "a", "train_target": "b",
            "dev_source": "c", "dev_target": "d",
        },
        "segmenter": {
            "tokenizer": "none", "merges": 0, "min_frequency": 1, "shared_vocabulary": True,
        },
        "model": {
            "encoder_layers": 1, "decoder_layers": 1, "dim": 16, "feedforward_dim": 32, "heads": 2,
            "dropout": 0.2, "attention_dropout": 0.1, "feedforward_dropout": 0.1, "tie": "all",
        },
        "encoding": {"absolute": {}},
        "optim": {"lr": 0.01, "beta2": 0.98, "eps": 1e-9, "decay": 0.5, "patience": 1},
        "trainer": {
            "device": "cpu", "precision": "float32", "threads": 1, "batch_tokens": 64,
            "accumulate": 2, "max_epochs": 3, "checkpoints_per_epoch": 2, "log_every": 2,
            "tensorboard": False,
        },
        "decode": {
            "beam_size": 1, "alpha": 0.0, "max_length_offset": 5, "batch_tokens": 100,
            "window": 10, "too_long": "refuse",
        },
    }  # fmt: skip
    for name, value in changes.items():
        group, _, key = name.partition("__")
        if key:
            plain[group][key] = value
        else:
            plain[group] = value
    return thaw(plain)


def prepared(path: Path) -> Prepared:
    """Letters to their reversal, in a new directory; the same pairs every time."""
    pieces = list(LETTERS)
    side = Side(Bpe(Tokenizer("nfc", "none", "de"), [], pieces), Vocabulary(pieces))
    facts: dict[str, Any] = {
        "fingerprint": "abc",
        "train_pairs": 64,
        "longest_source": 9,
        "longest_target": 9,
    }
    counts = {"total": {"pairs": 64}, "kept": {"pairs": 64}, "dropped": {}, "unknown_share": {}}
    train, dev = store(path / "train", 64, 1), store(path / "dev", 16, 2)
    return Prepared(path, train, dev, side, side, facts, {"train": counts, "dev": counts})


def store(path: Path, pairs: int, seed: int) -> Pairs:
    """Pairs of 2 to 9 random letters and their reversal."""
    random = np.random.default_rng(seed)
    rows = dict[str, list[list[int]]](source=[], target=[])
    for _ in range(pairs):
        ids = random.integers(4, 4 + len(LETTERS), random.integers(2, 10)).tolist()
        rows["source"].append([*ids, 2])
        rows["target"].append([*ids[::-1], 2])
    dtype = np.dtype("<u2")
    write_pairs(path, [Pairs.of_rows(np.arange(1, pairs + 1), rows, dtype)], dtype)
    return read_pairs(path)


def train(run: Path, data: Prepared, /, **changes: Any) -> Outcome:
    """Open the run, train, and let go of it."""
    chosen = settings(**changes)
    with open_run(run, chosen) as opened:
        refuse_other_data(opened, data.facts["fingerprint"])
        if opened.finished:
            opened.write_config()
        return outcome_of(opened) if opened.finished else fit(data, opened)


def reopen(run: Path, **changes: Any) -> Run:
    """Open a run and let go of it; raises what `open_run` does."""
    with open_run(run, settings(**changes)) as opened:
        return opened


def at_update(patch: "pytest.MonkeyPatch", step: int | None, act: Callable[[Any], object]) -> None:
    """Call a function with the optimizer as soon as update `step`, or each (None), is made."""

    def hook(optimizer: Any, *_: object) -> None:
        made = max(int(state["step"]) for state in optimizer.state.values())
        if step in (None, made):
            act(optimizer)

    patch.setitem(_global_optimizer_post_hooks, id(hook), hook)


def stop_after(patch: "pytest.MonkeyPatch", step: int, number: int = signal.SIGTERM) -> None:
    """Send this process a signal within the update `step`."""
    at_update(patch, step, lambda optimizer: signal.raise_signal(number))


def at_module(patch: "pytest.MonkeyPatch", kind: type, act: Callable[..., Any]) -> None:
    """Call a function with (module, inputs, output) after each pass through modules of a kind.

    If it returns something, this takes the place of the output.
    """

    def hook(module: Any, inputs: Any, output: Any) -> Any:
        return act(module, inputs, output) if isinstance(module, kind) else None

    patch.setitem(_global_forward_hooks, id(hook), hook)


def full_disk(
    patch: "pytest.MonkeyPatch", steps: Iterable[int], number: int = errno.ENOSPC
) -> None:
    """A disk that writes no checkpoint of these steps, from their second file on."""
    write = Path.write_bytes

    def fail(path: Path, data: bytes) -> int:
        if path.name != "config.json" and any(f"step-{n:08d}" in str(path) for n in steps):
            raise OSError(number, os.strerror(number), str(path))
        return write(path, data)

    patch.setattr(Path, "write_bytes", fail)


def newest(run: Path) -> Path:
    """The checkpoint of the last step."""
    return max((run / "checkpoints").glob("step-*"))


def reports(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without what clocks say."""
    return without_clocks(lines(run))


def without_clocks(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    clock = {"seconds", "tokens_per_second", "memory_bytes"}
    return [{key: value for key, value in line.items() if key not in clock} for line in lines]


def same(run: Path, other: Path) -> bool:
    """Same last step, weights, moments and random state; same best; same reports."""

    def seen(path: Path) -> list[object]:
        last = newest(path)
        state = json.loads((last / "state.json").read_bytes())
        del state["seconds"], state["meter"]["seconds"]
        files = {file.name: digest(file) for file in last.glob("*.safetensors")}
        return [last.name, files, (path / "best").read_bytes(), reports(path), state]

    return seen(run) == seen(other)


def without_compiler() -> None:
    """Spare a process of a test two seconds: torch's optimizers import its compiler, unused."""
    spare: Any = ModuleType("torch._dynamo")
    spare.disable = lambda function, *rest, **more: function
    spare.graph_break = lambda: None
    sys.modules[spare.__name__] = spare


def lines(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, or those of one kind."""
    found = map(json.loads, (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1])
    return [line for line in found if kind in (None, line["kind"])]


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree(path: Path) -> dict[str, str]:
    """All files below a directory, hidden ones too, with their hashes."""
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): digest(p) for p in files}
