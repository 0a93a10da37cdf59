"""Two ranks that train one model: what they agree upon, and how they end."""

import json
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
from tests.training import ranks, tiny
from tests.training.ranks import ROOT, free_port, surroundings
from tests.training.test_resume import newest

WEIGHTS, OPTIMIZER = "model.safetensors", "optim.safetensors"

CHILD = """
import os, signal, sys, time
import torch
from datetime import timedelta
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel
from nmt import build
from nmt.cli.command import run as command
from nmt.errors import Exit, UserError
from nmt.training import distributed, loss
from nmt.training.distributed import joined
from nmt.training.directory import open_run
from nmt.training.trainer import Trainer
from tests.training import tiny

os.fsync = lambda descriptor: None
root, what = Path(sys.argv[1]), sys.argv[2]
fit, update, smoothed = Trainer.fit, Trainer.update, loss.smoothed
transformer = build.transformer

def noted(self):
    code = fit(self)
    held = [*self.model.state_dict().values(), *self.evaluated.parameters()]
    sums = [str(value.double().sum().item()) for value in held]
    moved = f"{len(self.optimizer.state)} of {len(self.parameters)} parameters"
    told = [f"{self.step} {Exit(code).name}", moved, *sums]
    (root / f"{name}-{self.world.rank}").write_bytes("\\n".join(told).encode())
    return code

def after(step, act, rank=1):  # on one rank alone
    def changed(self, signal):
        stopping = update(self, signal)
        if not stopping and self.step == step and self.world.rank == rank:
            act()
        return stopping
    Trainer.update = changed

def die():
    (root / "end").touch()
    os.kill(os.getpid(), signal.SIGKILL)

def fail():
    (root / "end").touch()
    raise ValueError("only here")

def hang():  # as a machine without power: its connections stay open
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    (root / "end").touch()
    time.sleep(100)

def freeze():  # the same, with all threads: rank 0 has the store
    os.kill(os.getpid(), signal.SIGSTOP)

def unsynchronised(self):  # buffers, which do not change
    raise AssertionError("the buffers were broadcast")

def impatient():
    save = Trainer.save
    def slow(self, cost):
        save(self, cost)
        if self.world.rank == 0:
            time.sleep(8)
    distributed.TIMEOUT, Trainer.save = timedelta(seconds=5), slow

def refuse():
    (root / "end").touch()
    raise UserError("no such corpus")

def unused(*args):
    model = transformer(*args)
    model.unused = torch.nn.Parameter(torch.ones(3))
    model.register_buffer("constant", torch.ones(3), persistent=False)
    return model

def poison():
    def poisoned(*args):
        bad = float("nan") if args[0].requires_grad else 1.0  # the dev set stays as it is
        return tuple(each * bad for each in smoothed(*args))
    loss.smoothed = poisoned

def train(run, data, world, **changes):
    with open_run(root / run, tiny.settings(**changes), world) as opened:
        tiny.fit(data, opened)

def main(words):
    global name
    if what in ("hang", "freeze"):
        impatient()
    DistributedDataParallel._sync_buffers = unsynchronised
    with joined() as world:
        data = tiny.prepared(root / f"data{world.rank}")
        if what == "refuse":
            world.broadcast(refuse)
        if what != "fine":
            acts = {"die": die, "fail": fail, "hang": hang, "freeze": freeze}
            after(3, acts[what], rank=0 if what == "freeze" else 1)
            train("run", data, world)
            return
        for name in ("exact", "whole", "stopped", "resumed", "unused", "poisoned"):
            Trainer.fit, Trainer.update = noted, update
            more = tiny.EXACT if name == "exact" else tiny.DRAWN
            if name == "stopped":
                after(3, lambda: signal.raise_signal(signal.SIGTERM))
            build.transformer = unused if name == "unused" else transformer
            if name == "unused":
                more = {"trainer__max_steps": 2}
            if name == "poisoned":
                after(1, poison)
                more = {**more, "trainer__max_steps": 2}
            train({"stopped": "run", "resumed": "run"}.get(name, name), data, world, **more)

second = 0
if what == "fine":
    import torch._dynamo  # the optimizer would, in both
    import torch.distributed.nn
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


def child(root: Path, what: str) -> "subprocess.CompletedProcess[bytes]":
    script = root / "child.py"
    script.write_bytes(CHILD.encode())
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # as nmt-train has it; this script imports torch first
    return torchrun(str(script), str(root), what, environment=quiet)


def both(root: Path) -> None:
    """Start two ranks as torchrun would, without its own three seconds; they must end well.

    The second is forked from the first, once all is imported.
    """
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), "fine"],
        env=surroundings(2),
        stderr=subprocess.PIPE,
        cwd=ROOT,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six trainings by two ranks, in one start; look, do not touch."""
    root = tmp_path_factory.mktemp("pair")
    both(root)
    return root


def test_two_ranks_make_the_updates_of_one(pair: Path, data: Prepared, tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", data, **tiny.EXACT)
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


@pytest.mark.parametrize("name", ["exact", "whole", "stopped", "resumed", "unused", "poisoned"])
def test_the_ranks_have_the_same_weights(name: str, pair: Path) -> None:
    assert (pair / f"{name}-0").read_bytes() == (pair / f"{name}-1").read_bytes()


def test_a_parameter_without_a_gradient_keeps_none(pair: Path) -> None:
    """Adam would move it otherwise, by its momentum and its decay."""
    moved = (pair / "unused-0").read_text().split("\n")[1].split()
    assert int(moved[0]) == int(moved[2]) - 1
    for name in ("exact", "whole"):
        moved = (pair / f"{name}-0").read_text().split("\n")[1].split()
        assert moved[0] == moved[2]


def test_no_thread_of_the_group_outlives_it(pair: Path) -> None:
    for rank in range(2):  # one that ends as late as Python does can abort the process
        assert "gloo" not in (pair / f"threads-{rank}").read_text()


def test_a_signal_to_one_stops_both_after_the_same_step(pair: Path) -> None:
    for rank in (0, 1):
        assert (pair / f"stopped-{rank}").read_bytes().startswith(b"3 TERMINATED\n")
        assert (pair / f"resumed-{rank}").read_bytes().startswith(b"12 OK\n")


def test_stop_and_resume_with_two_ranks(pair: Path) -> None:
    whole, run = newest(pair / "whole"), newest(pair / "run")
    assert whole.name == run.name
    for name in (WEIGHTS, OPTIMIZER, RAW):
        assert tiny.digest(whole / name) == tiny.digest(run / name)
    seen = [
        [(m["step"], m["perplexity"]) for m in tiny.lines(pair / r, "dev")]
        for r in ("whole", "run")
    ]
    assert seen[0] == seen[1] and len(seen[0]) == 6


def test_rank_0_alone_writes(pair: Path) -> None:
    log = (pair / "run/train.log").read_bytes().decode()
    assert log.count("resuming at step 3") == 1 and "not bit-identical" not in log
    steps = [line["step"] for line in tiny.lines(pair / "run", "train")]
    assert steps == sorted(set(steps))
    state = json.loads((newest(pair / "run") / "state.json").read_bytes())
    assert state["environment"]["workers"] == "2"
    assert not (pair / "run" / HOLDER).exists()


def test_a_gradient_that_is_not_finite_on_one_is_skipped_by_both(
    pair: Path, data: Prepared
) -> None:
    """Their weights are equal, says a test above; here they are those before the update."""
    (skipped,) = tiny.lines(pair / "poisoned", "skipped")
    o = tiny.settings().trainer
    batches = Batches(data.train, o.batch_tokens, o.batch_count, tiny.settings().seed)
    assert skipped["step"] == 2 and skipped["lines"] == [
        n for i in (2, 3) for part in batches.batch(0, i) for n in part.lines
    ]
    moments = safetensors.torch.load_file(newest(pair / "poisoned") / OPTIMIZER)
    steps = {float(value) for key, value in moments.items() if key.endswith("/step")}
    assert steps == {1.0}  # of the optimizer, after two updates of the run


def test_another_number_of_ranks_is_logged(
    pair: Path, data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(pair / "poisoned", tmp_path / "run")
    with caplog.at_level(logging.WARNING):
        tiny.train(tmp_path / "run", data, trainer__max_steps=3, **tiny.DRAWN)
    assert "not bit-identical" in caplog.text and "workers 2 -> 1" in caplog.text


def ended(done: "subprocess.CompletedProcess[bytes]", root: Path) -> list[str]:
    """What the ranks themselves said, once both have ended soon after one of them did."""
    assert time.time() - (root / "end").stat().st_mtime < 25  # torchrun kills after 30
    assert done.returncode == 1
    words = ("nmt: ", "[rank0]: ValueError", "[rank1]: ValueError")
    return [line for line in done.stderr.decode().split("\n") if line.startswith(words)]


@pytest.mark.slow
def test_a_failure_of_one_ends_both_and_is_said_once(tmp_path: Path) -> None:
    done = child(tmp_path, "fail")
    assert ended(done, tmp_path) == ["[rank1]: ValueError: only here"]
    assert done.stderr.count(b"[rank1]: Traceback") == 1 and b"[rank0]" not in done.stderr
    assert b"another rank failed, was killed" in (tmp_path / "run/train.log").read_bytes()
    assert newest(tmp_path / "run").name == "step-00000002"


@pytest.mark.slow
def test_a_killed_rank_ends_the_other(tmp_path: Path) -> None:
    (said,) = ended(child(tmp_path, "die"), tmp_path)
    assert said.startswith("nmt: another rank failed, was killed or does not answer; the same")


@pytest.mark.slow
def test_a_lost_machine_is_noticed_soon_though_rank_0_may_save_for_longer(tmp_path: Path) -> None:
    """The checkpoint of step 2 takes longer than counts may wait, and step 3 has no peer."""
    (said,) = ended(child(tmp_path, "hang"), tmp_path)
    assert said.startswith("nmt: another rank failed, was killed or does not answer; the same")
    assert newest(tmp_path / "run").name == "step-00000002"


@pytest.mark.slow
def test_the_loss_of_the_machine_that_has_the_store_is_noticed_too(tmp_path: Path) -> None:
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
    assert left.returncode == Exit.IO and lost.returncode == -signal.SIGKILL
    said = [line for line in err.decode().split("\n") if line.startswith("nmt: ")]
    assert len(said) == 1 and "another rank failed, was killed" in said[0]


@pytest.mark.slow
def test_what_rank_0_refuses_ends_those_that_wait_for_it(tmp_path: Path) -> None:
    assert ended(child(tmp_path, "refuse"), tmp_path) == ["nmt: no such corpus"]


@pytest.mark.slow
def test_two_ranks_then_three_then_one_learn_as_one_does(data: Prepared, tmp_path: Path) -> None:
    exact = {**tiny.EXACT, "trainer__accumulate": 6, "optim__eps": 1e-4}
    for count, steps in ((2, 3), (3, 5)):
        ranks.train(count, tmp_path, json.dumps({**exact, "trainer__max_steps": steps}))
    for run in ("run", "plain"):
        tiny.train(tmp_path / run, data, **exact, trainer__max_steps=8)
    one, several = (
        safetensors.torch.load_file(newest(tmp_path / run) / WEIGHTS) for run in ("plain", "run")
    )
    for name, value in one.items():
        torch.testing.assert_close(several[name], value, rtol=1e-5, atol=1e-5)


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
    done = torchrun("-m", "nmt.cli.train", *words)  # one batch an update
    said = [line for line in done.stderr.decode().split("\n") if line.startswith("nmt: ")]
    assert said == [
        "nmt: trainer.accumulate=1: an update needs a batch for each of 2 ranks; "
        "start at most 1, or, for a new run, set trainer.accumulate=2 "
        "(and lower trainer.batch_tokens for updates as large as before)"
    ]
    assert not (tmp_path / "runs").exists() and b"[rank" not in done.stderr
    words += ["trainer.accumulate=2", "trainer.batch_tokens=300"]
    done = torchrun("-m", "nmt.cli.train", *words)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"{tmp_path}/runs/run\n"
    assert done.stderr.count(b"next:  nmt-translate") == 1 and b"Warning" not in done.stderr
    assert newest(tmp_path / "runs/run").name == "step-00000002"
    done = torchrun("-m", "nmt.cli.train", *words)  # rank 0 broadcasts which corpus it is
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.count(b"already finished at step 2") == 1


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
    with pytest.raises(UserError, match="device=cuda:2: torch finds no such GPU") as error:
        World(2, 3, 2).device("cuda")
    assert error.value.code == Exit.UNAVAILABLE


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


def test_without_torchrun_there_is_one_process_and_no_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a process of its own, since this one has loaded torch."""
    script = (
        "import ctypes, sys; from nmt.training.distributed import joined\n"
        "at_end = ctypes.c_int()\n"
        "with joined() as w: print(w.rank, w.size, 'torch' in sys.modules)\n"
        "if sys.platform == 'linux': ctypes.CDLL(None).prctl(2, ctypes.byref(at_end))\n"
        "print(at_end.value)"  # the signal that it gets at the end of its parent
    )
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    alone = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    of_torchrun = {**alone, "TORCHELASTIC_RUN_ID": "none"}
    for more in ({}, of_torchrun, {"WORLD_SIZE": "2"}):  # the last: of another launcher
        ends = more is of_torchrun and sys.platform == "linux"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **more},
            capture_output=True,
            cwd=ROOT,
        )
        expected = f"0 1 False\n{int(signal.SIGTERM) if ends else 0}\n"
        assert done.stdout.decode() == expected, done.stderr.decode()
