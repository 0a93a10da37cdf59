"""nmt-demo: the whole job on the embedded corpus, two encodings side by side by length."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from nmt.cli.words import run
from nmt.errors import Exit, UserError

USAGE = """nmt-demo [--runs DIR] [--encodings A,B] [KEY=VALUE ...]"""
ABOUT = """
Trains one model per encoding on sentences of 4 to 50 words at the same budget, translates
sentences of up to 100, and compares the systems by length: a table on stdout, and beside the
models comparison.json and comparison.png. The same command again resumes.
"""
BOUNDS = "25,50,75"  # the training sentences end at 50


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Train, compare, and say where everything lies."""
    parser = argparse.ArgumentParser(prog="nmt-demo", usage=USAGE, description=ABOUT)
    parser.add_argument("--runs", default="runs/demo", help="directory of the models")
    parser.add_argument("--encodings", default="absolute,relative", help="options, commas between")
    parser.add_argument("words", nargs="*", help="further words for nmt-train")
    asked = parser.parse_args(argv)
    runs, encodings = Path(asked.runs), asked.encodings.split(",")

    from nmt.cli.compose import experiment_of
    from nmt.cli.texts import test_texts

    base = ["experiment=demo", f"runs={runs}", *asked.words]
    settings = experiment_of(base).settings
    runs.mkdir(parents=True, exist_ok=True)
    _train_all(runs, [[*base, f"encoding={e}", f"name={e}"] for e in encodings], encodings)
    source, reference = test_texts(settings)
    words = [f"{e}={runs / e}" for e in encodings]
    words += ["--source", source, "--reference", reference, "--bounds", BOUNDS]
    words += ["--json", str(runs / "comparison.json"), "--plot", str(runs / "comparison.png")]
    from nmt.cli.evaluate import command as evaluate

    sys.stderr.write(f"\nnmt-evaluate {' '.join(words)}\n\n")
    evaluate(words)
    sys.stderr.write(f"\nmodels, table and picture: {runs}\n")


def _train_all(runs: Path, commands: list[list[str]], names: list[str]) -> None:
    """Run nmt-train for each, as many at once as there are cores, and report on them."""
    waiting = list(zip(names, commands, strict=True))
    running: dict[str, subprocess.Popen[bytes]] = {}
    began, told = time.monotonic(), 0.0
    try:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                name, words = waiting.pop(0)
                running[name] = _start(runs / f"{name}.log", words)
            for name in [n for n, p in running.items() if p.poll() is not None]:
                if running.pop(name).returncode:
                    raise UserError(
                        f"{runs / name}: training failed; see {runs / name}.log", Exit(70)
                    )
            if time.monotonic() - told > 15 or not running:
                told = time.monotonic()
                sys.stderr.write(f"{told - began:4.0f} s  {_state(runs, names)}\n")
            time.sleep(0.5)
    finally:
        for process in running.values():
            process.terminate()  # saves first, so the same command resumes
            process.wait()


def _start(log: Path, words: list[str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "nmt.cli.train", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def _state(runs: Path, names: list[str]) -> str:
    """The last step of each run, and how perplexed the model was."""
    said = []
    for name in names:
        metrics = runs / name / "metrics.jsonl"
        whole = metrics.read_bytes().split(b"\n")[:-1] if metrics.exists() else []
        lines = [line for line in whole if b'"perplexity"' in line]
        if not lines:
            said.append(f"{name}: starting")
            continue
        last = json.loads(lines[-1])
        where = f"{last['kind']} perplexity {last['perplexity']:.3f}"
        said.append(f"{name}: step {last['step']}, {where}")
    return "   ".join(said)


if __name__ == "__main__":
    sys.exit(main())
