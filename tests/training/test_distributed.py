"""Two ranks that train one model: what they agree upon, and how they end."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.corpus.batches import Batches
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.training.checkpoint import RAW
from nmt.training.directory import HOLDER
from nmt.training.distributed import World, explain_lost_rank
from tests.training import tiny
from tests.training.ranks import ROOT, free_port, surroundings
from tests.training.tiny import newest

WEIGHTS, OPTIMIZER = "model.safetensors", "optim.safetensors"

CHILD = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import pytest
from nmt.cli.command import run as command
from nmt.training import distributed
from nmt.training.directory import open_run
from tests.training import tiny

os.fsync = lambda descriptor: None
root, what = Path(sys.argv[1]), sys.argv[2]

def note(name, rank):
    def sums(optimizer):
        parameters = optimizer.param_groups[0]["params"]
        moved = f"{len(optimizer.state)} of {len(parameters)}"
        told = " ".join(str(p.double().sum().item()) for p in parameters)
        with (root / f"{name}-{rank}").open("a") as file:
            file.write(f"{moved} {told}\\n")
    return sums

def die(optimizer):
    (root / "end").touch()
    os.kill(os.getpid(), signal.SIGKILL)

def fail(optimizer):
    (root / "end").touch()
    raise ValueError("only here")

def freeze(optimizer):  # as a machine without power, with the store: its connections stay open
    os.kill(os.getpid(), signal.SIGSTOP)

def poison(optimizer):
    optimizer.param_groups[0]["params"][0].register_hook(lambda grad: grad * float("nan"))

def slow_disk():
    rename = os.rename
    def renamed(*names):
        time.sleep(8)  # longer than sums may wait
        rename(*names)
    os.rename, distributed.TIMEOUT = renamed, timedelta(seconds=5)

LAYERS = {f"model__{stack}_layers": 2 for stack in ("encoder", "decoder")}
FIXED = {**LAYERS, "encoding": {"gaussian": {"layers": [0]}}}  # reads no queries and keys there
RUNS = {
    "exact": ("exact", {**tiny.EXACT, "trainer__ema": 0.9}, None),
    "whole": ("whole", tiny.DRAWN, None),
    "stopped": ("run", tiny.DRAWN, (3, lambda optimizer: signal.raise_signal(signal.SIGTERM))),
    "resumed": ("run", tiny.DRAWN, None),
    "unused": ("unused", {**FIXED, "trainer__max_steps": 2}, None),
    "poisoned": ("poisoned", {**tiny.DRAWN, "trainer__max_steps": 2}, (1, poison)),
}

def main(words):
    if what == "freeze":
        slow_disk()
    with distributed.connect_ranks() as world:
        data = tiny.prepared(root / f"data{world.rank}")
        if what != "fine":
            if world.rank == (1 if what != "freeze" else 0):
                acts = {"die": die, "fail": fail, "freeze": freeze}
                tiny.at_update(pytest.MonkeyPatch(), 3, acts[what])
            with open_run(root / "run", tiny.settings(), world) as opened:
                tiny.fit(data, opened)
            return
        for name, (run, changes, act) in RUNS.items():
            with pytest.MonkeyPatch.context() as patch:
                tiny.at_update(patch, None, note(name, world.rank))
                if act and world.rank == 1:
                    tiny.at_update(patch, *act)
                with open_run(root / run, tiny.settings(**changes), world) as opened:
                    tiny.fit(data, opened)

second = 0
if what == "fine":
    import torch._dynamo  # the optimizer would, in both
    import torch.distributed.nn
    import torch.nn.parallel
    second = os.fork()  # nothing has been computed yet, and there are no threads
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if second else "1"
code = command(main)
if what == "fine":
    left = sorted(each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm"))
    (root / f"threads-{os.environ['RANK']}").write_text(" ".join(left))
if second:
    code = code or os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
sys.exit(code)
"""


def torchrun(
    *words: str, seconds: int = 200, environment: Mapping[str, str] = {}
) -> "subprocess.CompletedProcess[bytes]":
    """Start two ranks and wait for their end; torchrun's own output is in stderr, too."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nproc_per_node=2", f"--master_port={port}", *words),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # killed, it would leave its ranks behind
        process.communicate(timeout=90)
        raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six trainings by two ranks, in one start without torchrun; look, do not touch."""
    root = tmp_path_factory.mktemp("pair")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), "fine"],
        env=surroundings(2),
        stderr=subprocess.PIPE,
        cwd=ROOT,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr.decode()
    return root


def test_two_ranks_make_the_updates_of_one(pair: Path, data: Prepared, tmp_path: Path) -> None:
    """And the same average of the weights, by which both measure a part of the dev text."""
    tiny.train(tmp_path / "run", data, **tiny.EXACT, trainer__ema=0.9)
    for kind, keys in (("train", ("loss", "perplexity", "grad_norm")), ("dev", ("perplexity",))):
        one, two = tiny.lines(tmp_path / "run", kind), tiny.lines(pair / "exact", kind)
        assert [m["step"] for m in one] == [m["step"] for m in two] and one
        for a, b in zip(one, two, strict=True):
            for key in keys:
                assert b[key] == pytest.approx(a[key], rel=1e-5, abs=1e-5)
    weights = [
        safetensors.torch.load_file(newest(run) / WEIGHTS)
        for run in (tmp_path / "run", pair / "exact")
    ]
    for key, value in weights[0].items():
        if not key.endswith("key.bias"):  # has no effect, so Adam follows its rounding errors
            torch.testing.assert_close(weights[1][key], value, rtol=1e-3, atol=1e-4)


def noted(pair: Path, name: str, rank: int = 0) -> list[list[str]]:
    """After each update: moments of how many parameters, of how many, and the parameters' sums."""
    return [line.split() for line in (pair / f"{name}-{rank}").read_text().splitlines()]


def test_the_ranks_have_the_same_weights_and_stop_together(pair: Path) -> None:
    updates = {"exact": 6, "whole": 8, "stopped": 3, "resumed": 5, "unused": 2, "poisoned": 2}
    for name, count in updates.items():
        assert noted(pair, name) == noted(pair, name, 1) and len(noted(pair, name)) == count


def test_a_parameter_without_a_gradient_keeps_none(pair: Path) -> None:
    """Adam would move it otherwise, by its momentum and its decay."""
    for name in ("unused", "whole"):
        moved, _, all_of_them, *_ = noted(pair, name)[-1]
        assert (int(moved) < int(all_of_them)) == (name == "unused")


def test_no_thread_of_the_group_outlives_it(pair: Path) -> None:
    for rank in range(2):  # one that ends as late as Python does can abort the process
        assert "gloo" not in (pair / f"threads-{rank}").read_text()


def test_stop_and_resume_with_two_ranks(pair: Path) -> None:
    """A signal to rank 1 stops both; rank 0 alone writes."""
    whole, run = newest(pair / "whole"), newest(pair / "run")
    assert whole.name == run.name
    for name in (WEIGHTS, OPTIMIZER, RAW):
        assert tiny.digest(whole / name) == tiny.digest(run / name)
    assert tiny.reports(pair / "whole") == tiny.reports(pair / "run")
    log = (pair / "run/train.log").read_bytes().decode()
    assert log.count("resuming at step 3") == 1 and "not bit-identical" not in log
    assert not (pair / "run" / HOLDER).exists()


def test_a_gradient_that_is_not_finite_on_one_is_skipped_by_both(
    pair: Path, data: Prepared
) -> None:
    (skipped,) = tiny.lines(pair / "poisoned", "skipped")
    o = tiny.settings().trainer
    batches = Batches(data.train, o.batch_tokens, o.batch_count, tiny.settings().seed)
    assert skipped["step"] == 2 and skipped["lines"] == [
        n for i in (2, 3) for part in batches.batch(0, i) for n in part.lines
    ]
    before, after = noted(pair, "poisoned")
    assert before == after


def test_another_number_of_ranks_is_logged(
    pair: Path, data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(pair / "poisoned", tmp_path / "run")
    with caplog.at_level(logging.WARNING):
        tiny.train(tmp_path / "run", data, trainer__max_steps=3, **tiny.DRAWN)
    assert "not bit-identical" in caplog.text and "workers 2 -> 1" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("what", ["fail", "die"])
def test_a_failure_of_one_ends_both(what: str, tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_bytes(CHILD.encode())
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # as nmt-train has it; this script imports torch first
    done = torchrun(str(script), str(tmp_path), what, environment=quiet)
    assert time.time() - (tmp_path / "end").stat().st_mtime < 25  # torchrun kills after 30
    assert done.returncode == 1
    lines, lost = done.stderr.decode().split("\n"), "another rank failed, was killed or does not"
    assert [line for line in lines if line.startswith(f"nmt: {lost}")]
    assert ("[rank1]: ValueError: only here" in lines) == (what == "fail")
    assert not [line for line in lines if line.startswith("[rank0]")]
    assert lost in (tmp_path / "run/train.log").read_text()
    assert newest(tmp_path / "run").name == "step-00000002"


@pytest.mark.slow
def test_a_lost_machine_is_noticed_soon_though_rank_0_may_save_for_longer(tmp_path: Path) -> None:
    """It is the one that has the store. Its checkpoint takes longer than sums may wait."""
    common = {**surroundings(2), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    lost, left = (
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), "freeze"],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        for rank in range(2)
    )
    try:
        _, err = left.communicate(timeout=100)
    finally:
        for rank in (left, lost):
            rank.kill()
            rank.communicate()
    assert newest(tmp_path / "run").name == "step-00000002"
    assert left.returncode == Exit.IO and lost.returncode == -signal.SIGKILL
    said = [line for line in err.decode().split("\n") if line.startswith("nmt: ")]
    assert len(said) == 1 and "another rank failed, was killed" in said[0]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="the system tells no process of its parent's end"
)
def test_ranks_end_and_save_when_torchrun_is_killed(tmp_path: Path) -> None:
    words = [f"runs={tmp_path}", "name=run", f"data.cache={tmp_path}/cache", "trainer=cpu"]
    words += ["trainer.accumulate=2", "trainer.max_steps=100000", "trainer.log_every=1"]
    words += ["model.dim=16", "model.feedforward_dim=16", "model.heads=2", "trainer.threads=1"]
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    start += [f"--master_port={free_port()}", "-m", "nmt.cli.train", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(start, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    metrics, end = tmp_path / "run/metrics.jsonl", time.monotonic() + 100
    while not (metrics.is_file() and metrics.stat().st_size):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.kill()
    process.wait()
    end = time.monotonic() + 25
    while any(alive(int(pid)) for pid in children):
        assert time.monotonic() < end
        time.sleep(0.1)
    steps = [line["step"] for line in tiny.lines(tmp_path / "run", "train")]
    assert newest(tmp_path / "run").name == f"step-{steps[-1]:08d}"  # saved where it stopped


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    words = [f"runs={tmp_path}/runs", "name=run", f"data.cache={tmp_path}/cache", "trainer=cpu"]
    words += ["data.train_pairs=300", "data.dev_pairs=20", "trainer.max_steps=2"]
    words += ["trainer.accumulate=2", "trainer.batch_tokens=300"]
    done = torchrun("-m", "nmt.cli.train", *words)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"{tmp_path}/runs/run\n"
    assert done.stderr.count(b"next:  nmt-translate") == 1 and b"Warning" not in done.stderr
    assert newest(tmp_path / "runs/run").name == "step-00000002"


def test_dropout_is_that_of_the_batch_whoever_gets_it() -> None:
    def drawn(size: int, step: int, seed: int = 1) -> list[float]:
        """A random number of each of the six batches of an update, in their order."""
        found = {}
        for rank in range(size):
            world = World(rank, size)
            for place in world.shard(range(6)):
                world.seed(seed, step, (place, 0))
                found[place] = float(torch.rand(()))
        return [found[place] for place in range(6)]

    with torch.random.fork_rng(devices=[]):
        assert drawn(2, 7) == drawn(3, 7) == drawn(6, 7)
        assert len({*drawn(2, 7), *drawn(2, 8), *drawn(2, 7, seed=2)}) == 18


def test_each_rank_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cuda", "auto"):
        assert [str(World(r, 2, r).device(name)) for r in (0, 1)] == ["cuda:0", "cuda:1"]
    assert str(World(1, 2, 1).device("cpu")) == "cpu"
    with pytest.raises(UserError, match="device=cuda:2: torch finds no such GPU"):
        World(2, 3, 2).device("cuda")


def test_an_error_of_nccl_is_told_by_its_reason() -> None:
    """Its first line says where in NCCL, its last why (NCCLUtils.hpp of torch)."""
    first = "NCCL error in: NCCLUtils.cpp:94, unhandled system error, NCCL version 2.27.5\n"
    cause = "Error while creating shared memory, No space"
    lost = explain_lost_rank(RuntimeError(f"{first}Call failed.\nLast error:\n{cause}\n"))
    assert lost is not None and lost.code == Exit.IO and f"({cause})" in str(lost)
    full = f"{first}Last error:\nCuda failure 2 'out of memory'"  # is reported as such
    assert explain_lost_rank(RuntimeError(full)) is None


def test_an_update_needs_a_batch_for_each_rank() -> None:
    few = tiny.settings(trainer__accumulate=2).trainer
    with pytest.raises(UserError, match=r"set trainer\.accumulate=3 ") as error:
        World(0, 3).check(few)
    assert error.value.code == Exit.USAGE
    World(0, 2).check(few)


@pytest.mark.parametrize("launcher", ["none", "torchrun"])
def test_without_torchrun_there_is_one_process_and_no_torch(launcher: str) -> None:
    """In a process of its own, since this one has loaded torch."""
    script = (
        "import ctypes, sys; from nmt.training.distributed import connect_ranks\n"
        "at_end = ctypes.c_int()\n"
        "with connect_ranks() as w: print(w.rank, w.size, 'torch' in sys.modules)\n"
        "if sys.platform == 'linux': ctypes.CDLL(None).prctl(2, ctypes.byref(at_end))\n"
        "print(at_end.value)"  # the signal that it gets at the end of its parent
    )
    variables = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    if launcher == "torchrun":  # with one process
        environment |= dict(zip(variables, ("0", "1", "0", "none"), strict=True))
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, cwd=ROOT
    )
    ends = launcher == "torchrun" and sys.platform == "linux"
    expected = f"0 1 False\n{int(signal.SIGTERM) if ends else 0}\n"
    assert done.stdout.decode() == expected, done.stderr.decode()
