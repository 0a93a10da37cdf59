"""The gates: what a checkout computes, to be compared with what its gate's reference commit did.

G1 losses, G3 translations and scores, G8 figures, G9 costs return values that a record keeps. G4
resumption and G7 ranks compare a checkout with itself: they return what is wrong.
"""

import json
import signal
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import safetensors.numpy

from tests.outside.checkouts import MODELS, PINNED, ROOT, TINY, Checkout
from tests.outside.figures import rows_of_diagnosis, rows_of_json

A = TypeVar("A")
B = TypeVar("B")
TEXT, REFERENCE = PINNED / "test.de", PINNED / "test.en"


class Values(NamedTuple):
    """What a gate measured."""

    everywhere: dict[str, Any]  # the same on all machines
    here: dict[str, Any]  # depends on the processor in its last bits


def in_parallel(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """The results for all items, two at once."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(function, items))


# G1

BPE = "segmenter.merges=200"


def measure_losses(checkout: Checkout, work: Path) -> Values:
    """Losses of 60 updates with dropout, and the perplexity of the development text."""

    def losses(encoding: str) -> tuple[str, Any]:
        run = _train(checkout, work, f"losses-{encoding}", f"encoding={encoding}", BPE)
        return encoding, [*_metrics(run, "train", "loss"), *_metrics(run, "dev", "perplexity")]

    return Values({}, dict(in_parallel(losses, ("absolute", "relative", "lstm", "rotary"))))


def _train(
    checkout: Checkout, work: Path, name: str, *overrides: str, steps: int = 60, log: int = 1
) -> Path:
    """Train so many updates on 1,500 pairs; returns the run."""
    checkout.run("train", *_training(name, steps, log), *overrides, cwd=work)
    return work / "runs" / name


def _training(name: str, steps: int = 60, log: int = 1) -> tuple[str, ...]:
    return (
        *(*TINY, f"name={name}", "data.train_pairs=1500", "data.test_pairs=2"),
        *(f"trainer.max_steps={steps}", f"trainer.log_every={log}"),
    )


def _metrics(run: Path, kind: str, key: str) -> list[float]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in lines if line]
    return [record[key] for record in records if record["kind"] == kind]


# G3

SAMPLE = ("decode.method=sample", "decode.temperature=0.9", "decode.top_p=0.95")
SEARCHES: dict[str, tuple[str | Path, ...]] = {
    "greedy": ("decode.beam_size=1",),
    "four best": ("--n-best", "4"),
    "samples": (*SAMPLE, "--n-best", "2"),
    "prefixes": ("--target-prefix", PINNED / "prefixes", "--scores"),
}
MORE_SEARCHES: dict[str, tuple[str | Path, ...]] = {  # of one model
    "coverage": ("decode.coverage_penalty=0.3", "--scores"),
    "restrictions": ("decode.no_repeat_ngram=3", "decode.min_length_ratio=0.9", "--scores"),
    "power": ("decode.length_penalty=power", "decode.alpha=1", "decode.beam_size=6", "--scores"),
    "mbr": (*SAMPLE, "decode.mbr=8", "--scores"),
    "forced": ("decode.length=forced", "--columns", f"length={PINNED}/lengths", "--scores"),
    "sentences": ("decode.split=sentences", "decode.unknown=allow", "--scores"),
    "parts": ("decode.max_source=12", "--scores"),
    "alignment": ("--alignment", "hard"),
    "scaled": ("decode.position_scale=0.5", "--scores"),
}


def measure_translations(checkout: Checkout, work: Path) -> Values:
    """Outputs and scores of all searches; two workers must give those of one."""
    runs = {model: checkout.build_run(model, work) for model in MODELS}
    jobs: list[tuple[str, tuple[Path, ...], str]] = [
        (model, (run,), name) for model, run in runs.items() for name in SEARCHES
    ]
    first = MODELS[0]
    jobs += [(first, (runs[first],), name) for name in MORE_SEARCHES]
    jobs += [("ensemble", (runs[first], runs[MODELS[1]]), "four best")]

    def translate(job: tuple[str, tuple[Path, ...], str]) -> tuple[str, list[str]]:
        model, models, name = job
        options = (SEARCHES | MORE_SEARCHES)[name]
        source = PINNED / "two.de" if name == "sentences" else TEXT
        output = checkout.run("translate", *models, source, *options, "--workers", "1", cwd=work)
        return f"{model}, {name}", output.removesuffix("\n").split("\n")

    outputs = dict(in_parallel(translate, jobs))
    two = checkout.run("translate", runs[first], TEXT, "--n-best", "4", "--workers", "2", cwd=work)
    assert two.removesuffix("\n").split("\n") == outputs[f"{first}, four best"], "two workers"
    texts: dict[str, Any] = {}
    scores: dict[str, Any] = {}
    for name, lines in outputs.items():
        drawn = name.endswith(("samples", "mbr"))  # by probabilities with their last bits
        (scores if drawn else texts)[name] = [_texts(line) for line in lines]
        scores[f"{name}, scores"] = [line for line in lines if _texts(line) != line]
    for model, run in runs.items():
        scored = checkout.run("score", run, TEXT, REFERENCE, "--tokens", cwd=work)
        scores[f"{model}, log-probabilities"] = [
            json.loads(line)["log_probs"] for line in scored.split("\n") if line
        ]
    return Values(texts, scores)


def _texts(line: str) -> str:
    """A line of output without its score."""
    *numbers, text = line.split("\t")
    return "\t".join([*numbers[:-1], text])


# G4

KILLS = (7, 24, 41)  # updates after which a training is killed


def check_resumption(checkout: Checkout, work: Path) -> list[str]:
    """A training that is killed three times and goes on ends as one that never was."""
    problems = []
    for encoding in ("relative", "lstm"):
        overrides = (f"encoding={encoding}", "data.join=2", BPE)
        whole = _train(checkout, work, f"whole-{encoding}", *overrides)
        arguments = (*_training(f"killed-{encoding}"), *overrides)
        killed = work / "runs" / f"killed-{encoding}"
        for step in KILLS:
            with checkout.start("train", *arguments, cwd=work) as process:
                while process.poll() is None and _steps(killed) < step:
                    time.sleep(0.005)
                process.send_signal(signal.SIGKILL)
            if process.returncode != -signal.SIGKILL:
                problems.append(f"{encoding}: ended before update {step}")
        checkout.run("train", *arguments, cwd=work)
        for key in ("loss", "grad_norm"):
            if _metrics(killed, "train", key) != _metrics(whole, "train", key):
                problems.append(f"{encoding}: other {key} after {KILLS}")
        if _metrics(killed, "dev", "perplexity") != _metrics(whole, "dev", "perplexity"):
            problems.append(f"{encoding}: other perplexities after {KILLS}")
        if _largest_difference(killed, whole) != 0:
            problems.append(f"{encoding}: other weights after {KILLS}")
    return problems


def _steps(run: Path) -> int:
    """Updates that a run has reported, without a line that is half written."""
    file = run / "metrics.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return max((json.loads(line)["step"] for line in lines), default=0)


def _largest_difference(run: Path, other: Path) -> float:
    """Between the weights of the newest checkpoints of two runs."""
    newest = [max((path / "checkpoints").glob("step-*")) for path in (run, other)]
    assert newest[0].name == newest[1].name
    one, two = (safetensors.numpy.load_file(path / "model.safetensors") for path in newest)
    assert one.keys() == two.keys()
    return max(float(np.abs(one[name] - two[name]).max()) for name in one)


# G7


def check_ranks(checkout: Checkout, work: Path) -> list[str]:
    """Two ranks of gloo train as one process does."""
    overrides = ("encoding=relative", "model.dropout=0", "trainer.accumulate=2", BPE)
    one = _train(checkout, work, "one-process", *overrides, steps=20)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port)}
    ranks = [
        checkout.start(
            *("train", *_training("two-ranks", steps=20), *overrides),
            cwd=work,
            environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    ends = in_parallel(lambda rank: (rank.communicate()[1], rank.returncode), ranks)
    if problems := [f"exit code {code}: {errors[-500:]}" for errors, code in ends if code]:
        return problems
    difference = _largest_difference(one, work / "runs" / "two-ranks")
    losses = [_metrics(run, "train", "loss") for run in (one, work / "runs" / "two-ranks")]
    apart = max(abs(a - b) for a, b in zip(*losses, strict=True))
    return [f"apart by {difference}, losses by {apart}"] if max(difference, apart) > 1e-5 else []


# G8


def measure_figures(checkout: Checkout, work: Path) -> Values:
    """All figures of systems with seeds on two tests, of files, and of a diagnosis."""
    runs = [checkout.build_run(model, work) for model in ("absolute-1", "absolute-2")]
    runs += [checkout.build_run("relative-1", work), checkout.build_run("rotary-1", work)]
    for model in ("relative-1", "rotary-1"):
        runs.append(checkout.build_run(model, work, f"{model[:-1]}2", seed=2))
    metrics = ("--metric", "BLEU,BLEU-moses,chrF2,TER,exact")
    common = ("--bounds", "12,24,36", "--samples", "100", *metrics)
    more = ("--perplexity", "--lost", "--attention")
    files = [f"{name}={PINNED}/{name}.txt" for name in ("first", "second", "third")]
    text = ("--source", str(TEXT), "--reference", str(REFERENCE))
    named = {name: ("--test", f"{name}={TEXT},{REFERENCE}") for name in ("single", "joined")}
    if not (checkout.root / "nmt" / "evaluation").is_dir():  # ce9b2018
        return _measure_figures_before(checkout, work, runs, [*more, *common], files)
    here = dict[str, float]()
    for name, join in (("single", ()), ("joined", ("--join", "2"))):
        output = ("-o", f"{name}.json")
        checkout.run("evaluate", *runs, *named[name], *join, *more, *common, *output, cwd=work)
        here |= {f"runs|{k}": v for k, v in rows_of_json(work / f"{name}.json").items()}
    of_files = (*files, *text, "--join", "2", *common, "-o", "files.json")
    checkout.run("evaluate", *of_files, cwd=work)
    diagnosis = checkout.run("diagnose", runs[0], TEXT, "--reference", REFERENCE, cwd=work)
    here |= {f"diagnosis|{k}": v for k, v in rows_of_diagnosis(diagnosis).items()}
    return Values(rows_of_json(work / "files.json"), here)


def _measure_figures_before(
    checkout: Checkout, work: Path, runs: list[Path], options: list[str], files: list[str]
) -> Values:
    """The same by the commands that the reference commit has."""
    arguments = ("--name", "joined", "--source", TEXT, "--reference", REFERENCE)
    checkout.run("recipe", "testset", work / "tests", *arguments, cwd=work)
    joined = work / "tests" / "joined.de", work / "tests" / "joined.en"
    tests = ("--test", f"single={TEXT},{REFERENCE}", "--test", f"joined={joined[0]},{joined[1]}")
    checkout.run("evaluate", *runs, *tests, *options, "--json", "runs.json", cwd=work)
    text = ("--source", str(joined[0]), "--reference", str(joined[1]), *options[3:])
    checkout.run("evaluate", *files, *text, "--json", "files.json", cwd=work)
    single = ("--source", TEXT, "--reference", REFERENCE)
    diagnosis = checkout.run("evaluate", runs[0], *single, "--diagnose", cwd=work)
    here = {f"runs|{k}": v for k, v in rows_of_json(work / "runs.json").items()}
    here |= {f"diagnosis|{k}": v for k, v in rows_of_diagnosis(diagnosis).items()}
    return Values(rows_of_json(work / "files.json"), here)


# G9


def measure_costs(checkout: Checkout, work: Path) -> Values:
    """Calls, operations and waits of an update, and of a step of a search by a beam of 4.

    The differences of two trainings, and of two searches, so that what comes once cancels out.
    """
    costs: dict[str, float] = {}
    run = checkout.build_run("relative-1", work)
    lines = TEXT.read_text(encoding="utf-8").split("\n")[:8]
    (work / "eight.de").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for steps in (8, 24):
        (work / f"lengths-{steps}").write_text(f"{steps}\n" * 8, encoding="utf-8")

    def count(job: tuple[str, str, int]) -> int:
        command, what, steps = job
        output = (work / f"{command}-{what}-{steps}").resolve()
        if command == "train":
            name = f"costs-{what}-{steps}"
            arguments: tuple[str | Path, ...] = (
                *(*_training(name, steps, log=1000), "encoding=relative", BPE),
                "trainer.checkpoints_per_epoch=1",  # none between the updates
            )
        else:
            columns = ("--columns", f"length=lengths-{steps}", "--workers", "1")
            arguments = (run, "eight.de", "decode.length=forced", *columns)
        counting = (str(ROOT / "tests" / "outside" / "count_costs.py"), what, str(output))
        with checkout.start(command, *arguments, cwd=work, before=counting) as process:
            errors = process.communicate()[1]
        assert process.returncode == 0, errors[-2000:]
        return int(output.read_text(encoding="utf-8"))

    _train(checkout, work, "prepares-the-corpus", BPE, steps=1)
    jobs = [
        (command, what, steps)
        for command in ("train", "translate")
        for what in ("calls", "operations", "waits")
        for steps in (8, 24)
    ]
    counted = in_parallel(count, jobs)
    for (command, what, _), few, many in zip(jobs[::2], counted[::2], counted[1::2], strict=True):
        costs[f"{'update' if command == 'train' else 'step of a search'}, {what}"] = (
            many - few
        ) / 16
    return Values({}, costs)
