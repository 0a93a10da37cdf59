"""Whatever happens to files of a run, its corpus or a model is refused in one line, or harmless."""

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from nmt import sweep
from nmt.cli import average, command, evaluate, score, translate
from nmt.config.settings import Settings
from nmt.errors import Exit
from nmt.system.manifest import VerifiedDirectory
from nmt.training import run as training
from nmt.training.directory import progress
from tests import composing
from tests.cli.test_damaged_run import TINY
from tests.training import tiny
from tests.training.damage import RANDOM_DAMAGES

SEEDS, TRIES = range(2), 100
SECONDS = 30  # that an action may take; it takes a fifth of a second
REFUSED = {Exit.USAGE, Exit.DATA, Exit.NO_INPUT, Exit.CANT_CREATE, Exit.IO}
SETTINGS = ["segmenter.merges=30", "trainer.ema=0.9", "trainer.checkpoints_per_epoch=8"]
SETTINGS += ["optim.lr=6"]  # so high that the best of the two checkpoints is not the newest


class World(NamedTuple):
    """A run of six updates, its corpus, and a model, in one directory that can be restored."""

    path: Path
    settings: Settings

    def train(self, name: str, **changes: Any) -> Path:
        """Train to the end; returns the newest checkpoint, after verifying all of them."""
        trainer = replace(self.settings.trainer, **changes)
        training.train(replace(self.settings, trainer=trainer), self.path / name)
        checkpoints = sorted((self.path / name / "checkpoints").glob("step-*"))
        for checkpoint in checkpoints:
            VerifiedDirectory(checkpoint).verify()
        return checkpoints[-1]

    def do(self, action: str) -> tuple[int, str, object]:
        """Return the exit code, the lines on stderr, and the result of an action."""
        out, err, results = StringIO(), StringIO(), list[object]()
        with chdir(self.path), redirect_stdout(out), redirect_stderr(err), time_limit():
            code = command.run(lambda _: results.append(ACTIONS[action](self)), [])
        return code, err.getvalue(), (results, out.getvalue())

    def restore(self, action: str) -> None:
        """Restore what an action reads."""
        shutil.rmtree(self.path)
        for place in READ[action]:
            shutil.copytree(self.path.with_name("whole") / place, self.path / place)


@contextmanager
def time_limit() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def resume(world: World) -> object:
    newest = world.train("run", max_steps=8)
    return [tiny.digest(newest / f"{name}.safetensors") for name in ("model", "raw", "optim")]


def start_from(world: World) -> object:
    parent = str(world.path / "model")
    return tiny.digest(world.train("child", max_steps=1, init_from=parent) / "model.safetensors")


def tell_progress(world: World) -> object:
    assert sweep.describe_progress(world.path / "run")  # that of metrics.jsonl, which may be lost
    return progress(world.path / "run")


def run(command: Callable[[list[str]], None], *arguments: str) -> Callable[[World], object]:
    """Run a command; the result is all that it writes to the file or directory `out`."""

    def act(world: World) -> object:
        command([argument.format(world.path) for argument in arguments])
        out = world.path / "out"
        return tiny.tree(out) or (out.read_bytes() if out.exists() else None)

    return act


TEXT, OUT, CPU = "{}/../in.de", ("-o", "{}/out"), "--device=cpu"
ACTIONS: dict[str, Callable[[World], object]] = {
    "resume": resume,
    "start from": start_from,
    "progress": tell_progress,
    "translate by the run": run(translate.command, "{}/run", TEXT, CPU, *OUT),
    "translate by the model": run(translate.command, "{}/model", TEXT, CPU, *OUT),
    "score": run(score.command, "{}/run", TEXT, TEXT, CPU, *OUT),
    "evaluate": run(evaluate.command, "{}/run", CPU, "--samples=40"),
    "average the last": run(average.command, "{}/run", "--last=2", *OUT),
    "average models": run(average.command, "{}/run", "{}/model", *OUT),
}
READ: dict[str, tuple[str, ...]] = dict.fromkeys(ACTIONS, ("run",)) | {
    "resume": ("run", "cache"),
    "start from": ("model", "cache"),
    "evaluate": ("run", "cache"),
    "translate by the model": ("model",),
    "average models": ("run", "model"),
}
OLDER = ("names no checkpoint; using the newest", "; an earlier checkpoint counts")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    path = tmp_path_factory.mktemp("random") / "world"
    world = World(path, composing.settings_of(*TINY, *SETTINGS, f"data.cache={path / 'cache'}"))
    path.mkdir()
    (path.parent / "in.de").write_text("eins zwei\nvier\n\n", encoding="utf-8")
    world.train("run", max_steps=6)
    average.command([f"{path}/run", "--last=2", "-o", f"{path}/model"])
    assert world.do("evaluate")[0] == 0  # keeps the translations
    shutil.copytree(path, path.with_name("whole"))
    return world


@pytest.fixture(scope="module")
def expected(world: World) -> list[dict[str, object]]:
    """The results of the undamaged world; then two that come with a warning of OLDER."""
    losses = (None, "run/best", "run/checkpoints/step-00000006/state.json")
    results: list[dict[str, object]] = [{} for _ in losses]
    for i, lost in enumerate(losses):
        for action in ACTIONS:
            world.restore(action)
            if lost is not None:
                (world.path / lost).unlink(missing_ok=True)  # where the action reads the run
            code, err, results[i][action] = world.do(action)
            assert code == 0 or lost, err
    return results


def draw_files(world: World, action: str, draw: Random) -> list[str]:
    """One file, or a few, of those that an action reads."""
    place = world.path / draw.choice(READ[action])
    files = sorted(path for path in place.rglob("*") if path.is_file())
    chosen = draw.sample(files, draw.choice([1, 1, 1, 1, 2, 3]))
    return [path.relative_to(world.path).as_posix() for path in chosen]


def problem_of(
    world: World, action: str, names: list[str], expected: list[dict[str, object]]
) -> str | None:
    """Do something with what is damaged; returns what should not have happened, if anything."""
    try:
        code, err, result = world.do(action)
    except BaseException as error:
        return repr(error)
    if code:
        last = err.split("\n")[-2]
        plain = last.startswith("nmt: ") and err.count("nmt: ") == 1 and "Traceback" not in err
        places = [path for name in names for path in (Path(name), *Path(name).parents[:-1])]
        named = any(str(world.path / place) in last for place in places)
        named |= code == Exit.NO_INPUT and "run/config.json" in names  # which names other text
        return None if code in REFUSED and plain and named else f"exit {code}: {err}"
    warned = any(warning in err for warning in OLDER)
    same = any(result == results[action] for results in expected[: 3 if warned else 1])
    return None if same else f"another result: {result}; {err}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_damage_is_refused_or_harmless(
    seed: int, world: World, expected: list[dict[str, object]]
) -> None:
    draw, problems = Random(seed), list[str]()
    for number in range(TRIES):
        action = draw.choice([*ACTIONS])
        world.restore(action)
        names = draw_files(world, action, draw)
        kinds = [draw.choice([*RANDOM_DAMAGES]) for _ in names]
        for name, kind in zip(names, kinds, strict=True):
            if (world.path / name).is_file():  # else its directory is another one by now
                RANDOM_DAMAGES[kind](world.path / name, draw)
        if problem := problem_of(world, action, names, expected):
            damage = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
            problems.append(f"seed {seed}, number {number}: {damage}; {action}: {problem}")
    assert not problems, "\n".join(problems)
