"""Start-up: how long until a command says something, and until the first translated sentence."""

import shlex
import sys
from statistics import median

from scripts.bench import corpus
from scripts.bench.candidates import Command
from scripts.bench.decoding import force_length
from scripts.bench.rounds import benchmark
from scripts.bench.session import Session
from scripts.bench.table import BenchPart, Columns, figure_of, ranged, rows_of
from scripts.bench.training import size_of

HELP, FIRST = 0.5, 3.0  # seconds that a command may take: --help, the first sentence
COMMANDS = ("train", "translate", "evaluate", "prepare", "encodings")
COLUMNS: Columns = {
    "seconds": lambda m: ranged(m.seconds, "{:.2f}"),
    "goal": figure_of("goal", "{:.1f}"),
    "within": lambda m: {None: "", True: "yes", False: "no"}[m.figures["within"]],
}


def parts(session: Session) -> list[BenchPart]:
    """Measure whole commands, each from a process that has nothing loaded yet."""
    settings, threads = session.settings(*force_length(32)), session.options.threads
    directory = session.new_directory("startup")
    model = corpus.write_model(directory, settings, session.vocab)
    line = corpus.write(directory / "line", corpus.text(1, session.vocab, settings.seed))
    arguments: dict[str, list[str]] = {}
    goals: dict[str, float] = {}
    for code in ("pass", "import torch"):
        arguments[f"python -c {shlex.quote(code)}"] = ["-c", code]
    for name in COMMANDS[:2] if session.options.quick else COMMANDS:
        arguments[f"nmt-{name} --help"] = ["-m", f"nmt.cli.{name}", "--help"]
        goals[f"nmt-{name} --help"] = HELP
    first = "nmt-translate, first sentence"
    arguments[first] = ["-m", "nmt.cli.translate", str(model), str(line)]
    arguments[first] += ["-o", str(directory / "out")]
    arguments[first] += ["--device", session.device, "--threads", str(threads)]
    goals[first] = FIRST
    candidates = [Command(name, [sys.executable, *a], threads) for name, a in arguments.items()]
    (measured,) = benchmark(session.options.rounds, candidates)
    for m in measured:
        goal = goals.get(m.name)
        within = None if goal is None or not m.rounds else median(m.seconds) <= goal
        m.figures = {"goal": goal, "within": within}
    title = f"start-up of whole processes; the model has {size_of(settings)}"
    notes = ["files are in the page cache, as the warm-up round has read them"]
    facts = {"entries": [m.to_json() for m in measured]}
    return [BenchPart("startup", title, list(COLUMNS), rows_of(COLUMNS, measured), notes, facts)]
