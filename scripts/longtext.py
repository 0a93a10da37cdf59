"""LONGTEXT: the runs of docs/longtext/plan.md, trained where they are not finished.

    python -m scripts.longtext runs/longtext --manuals DIR --scan DIR

The same command goes on where it stopped. --list says how many hours are left, and trains nothing.
--manuals has train, dev and test text (.de, .en), --scan what `scripts/scan.py --longest 26`
writes. Without one, its parts are left out.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from nmt import preflight
from nmt.cli.command import run
from nmt.experiments.plan import PlannedRun, failure_error, prepare_corpora
from nmt.experiments.run import parallel_runs, train_all
from nmt.overrides.compose import experiment_of
from nmt.training.directory import STATUS
from nmt.training.metrics import METRICS, Line, read_metrics

PAPER = ("absolute", "relative", "relative_sinusoidal", "relative_key", "relative_absolute", "lstm")
ENCODINGS = (
    *(*PAPER, "rotary", "alibi_directional", "t5", "none"),
    *("rr_transformer", "tupe_relative"),  # best and worst of the single-seed table
)
ON_MANUALS = ("absolute", "relative", "relative_sinusoidal", "rotary", "alibi_directional", "lstm")
RATES = ("1e-3", "2e-3", "4e-3")
SEED_OF_RATES = 11  # no other run has it
REMEDIES = ("absolute", "rotary", "alibi_directional")
SHARES = ("0", "0.25", "0.5")  # of joined lines


class Part(NamedTuple):
    """The runs of one part of the plan that are known by now."""

    name: str
    hours: float  # of one core, as the plan has them
    planned: int  # runs, in all
    runs: list[PlannedRun]


class Places(NamedTuple):
    """Where runs go, and where text is."""

    runs: Path
    manuals: Path | None
    scan: Path | None


def main(argv: list[str] | None = None) -> int:
    """The script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Say what is left, and train it, part by part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="directory of the runs")
    parser.add_argument("--manuals", type=Path, metavar="DIR", help="text of parts C and D")
    parser.add_argument("--scan", type=Path, metavar="DIR", help="text of part B")
    parser.add_argument("--list", action="store_true", help="only say what is left")
    asked = parser.parse_args(argv)
    places = Places(asked.runs, asked.manuals, asked.scan)
    for number in range(len(list(parts(places)))):
        found = list(parts(places))  # what a part has may follow from the one before
        if number == 0 or not asked.list:
            sys.stdout.write("".join(f"{line}\n" for line in remaining(found)))
        if not asked.list:
            train(found[number].runs)


def train(runs: Sequence[PlannedRun]) -> None:
    """Train what is not finished; raises UserError (70) for runs that failed."""
    if runs:
        failed = train_all(runs, prepare_corpora(runs), parallel_runs(runs))
        if failed:
            raise failure_error(failed, len(runs))


def parts(places: Places) -> Iterator[Part]:
    """All parts for which there is text, in the order in which they are trained."""
    rates = [[rate_run(places, name, rate) for rate in RATES] for name in ENCODINGS]
    yield Part("rates", 2.0, 36, [run for of_encoding in rates for run in of_encoding])
    best = {name: best_rate(runs) for name, runs in zip(ENCODINGS, rates, strict=True)}
    chosen = [(name, rate) for name, rate in best.items() if rate is not None]
    yield Part("A", 8.0, 36, [grammar_run(places, *pair, s) for pair in chosen for s in (1, 2, 3)])
    if places.scan is not None:
        pairs = product(("absolute", "transformer_xl"), (1, 2))
        yield Part("B", 4.0, 4, [scan_run(places, *pair) for pair in pairs])
    if places.manuals is not None:
        trained = {pair: manuals_run(places, *pair) for pair in product(ON_MANUALS, (1, 2))}
        yield Part("C", 9.0, 12, list(trained.values()))
        parents = [run for (name, _), run in trained.items() if name == "absolute"]
        kinds = product(filter(is_finished, parents), REMEDIES, SHARES)
        yield Part("D", 3.0, 18, [remedy_run(places, *kind) for kind in kinds])


def planned(places: Places, part: str, *overrides: str, seed: int) -> PlannedRun:
    """One run below the directory of its part."""
    own = f"runs={places.runs / part}", f"data.cache={places.runs / 'cache'}", f"seed={seed}"
    experiment = experiment_of([*overrides, *own])
    preflight.check(experiment.settings)
    return PlannedRun(f"{part}/{experiment.run.name}", experiment)


def rate_run(places: Places, encoding: str, rate: str) -> PlannedRun:
    """The short run by which an encoding's rate is chosen."""
    words = "experiment=longtext", f"encoding={encoding}", f"optim.lr={rate}"
    short = "trainer.max_steps=800", "trainer.early_stopping=0"
    return planned(places, f"rates-{rate}", *words, *short, seed=SEED_OF_RATES)


def grammar_run(places: Places, encoding: str, rate: str, seed: int) -> PlannedRun:
    """A run on the embedded grammar, until it stalls."""
    words = "experiment=longtext", f"encoding={encoding}", f"optim.lr={rate}"
    return planned(places, "A", *words, seed=seed)


def scan_run(places: Places, encoding: str, seed: int) -> PlannedRun:
    """A run on SCAN, with one layer's weights in all."""
    words = "experiment=scan", f"data.root={places.scan}", f"encoding={encoding}"
    long = "model.share_layers=true", "trainer.max_steps=20000"
    return planned(places, "B", *words, *long, seed=seed)


def manuals_run(places: Places, encoding: str, seed: int) -> PlannedRun:
    """A run on the manuals."""
    words = "scale=small", f"data.root={places.manuals}", "data.name=manuals"
    return planned(places, "C", *words, "trainer.device=cpu", f"encoding={encoding}", seed=seed)


def remedy_run(places: Places, parent: PlannedRun, encoding: str, share: str) -> PlannedRun:
    """A run that goes on from a parent on lines of which some share is joined."""
    words = ["experiment=lengthen", f"parent={parent.directory}", "trainer.max_steps=450"]
    words += ["data.max_length=200", f"name={encoding}-share{share}-seed{parent.settings.seed}"]
    words += [] if share == "0" else ["data.join=4", f"data.join_share={share}"]
    words += [] if encoding == "absolute" else [f"encoding={encoding}", "optim.lr=1e-3"]
    return planned(places, "D", *words, seed=parent.settings.seed)


def best_rate(runs: Sequence[PlannedRun]) -> str | None:
    """The rate with the least dev perplexity of some encoding; None until all are finished."""
    if not all(map(is_finished, runs)):
        return None
    perplexity = [min(line["perplexity"] for line in dev_lines(run)) for run in runs]
    return RATES[perplexity.index(min(perplexity))]


def is_finished(run: PlannedRun) -> bool:
    """Whether a run has made all its updates, by its record: another process may be training it."""
    status = run.directory / STATUS
    return status.exists() and json.loads(status.read_bytes())["state"] == "finished"


def dev_lines(run: PlannedRun) -> list[Line]:
    """What was reported of the development set."""
    return [line for line in read_metrics(run.directory / METRICS).lines if line["kind"] == "dev"]


def remaining(found: Sequence[Part]) -> Iterator[str]:
    """How many runs and hours each part has left."""
    total = 0.0
    for part in found:
        done = sum(map(is_finished, part.runs))
        hours = part.hours * (1 - done / part.planned)
        total += hours
        yield f"{part.name:5} {done:2} of {part.planned} runs, {hours:4.1f} hours of a core left"
    yield f"{total:.1f} hours of a core left"


if __name__ == "__main__":
    sys.exit(main())
