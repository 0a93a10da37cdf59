"""Start-up: how long until a command says something, and until the first translated sentence."""

import shlex
import sys
from statistics import median

from scripts.bench import corpus, weights
from scripts.bench.candidates import Command
from scripts.bench.decoding import forced
from scripts.bench.rounds import benchmark
from scripts.bench.session import Session
from scripts.bench.table import BenchPart, Columns, figure_of, ranged
from scripts.bench.training import size

HELP, FIRST = 0.5, 3.0  # seconds that a command may take: --help, the first sentence
COMMANDS = ("train", "translate", "evaluate", "prepare", "encodings")
COLUMNS: Columns = {
    "seconds": lambda m: ranged(m.seconds, "{:.2f}"),
    "goal": figure_of("goal", "{:.1f}"),
    "within": lambda m: {None: "", True: "yes", False: "no"}[m.figures["within"]],
}


def parts(session: Session) -> list[BenchPart]:
    """Measure whole commands, each from a process that has nothing loaded yet."""
    settings = session.settings(*forced(32))
    place = session.place("startup")
    model = weights.make(place, settings, session.vocab)
    line = corpus.write(place / "line", corpus.text(1, session.vocab, settings.seed))
    goals: dict[str, float | None] = {}
    candidates: list[Command] = []

    def add(name: str, goal: float | None, *arguments: str) -> None:
        goals[name] = goal
        candidates.append(Command(name, [sys.executable, *arguments], session.threads))

    for code in ("pass", "import torch"):
        add(f"python -c {shlex.quote(code)}", None, "-c", code)
    for name in COMMANDS[:2] if session.quick else COMMANDS:
        add(f"nmt-{name} --help", HELP, "-m", f"nmt.cli.{name}", "--help")
    where = "--device", session.device, "--threads", str(session.threads)
    files = str(model), str(line), "-o", str(place / "out")
    translate = "-m", "nmt.cli.translate", *files, *where
    add("nmt-translate, first sentence", FIRST, *translate)
    (measured,) = benchmark(session.rounds, candidates)
    for m in measured:
        goal = goals[m.name]
        within = None if goal is None or not m.rounds else median(m.seconds) <= goal
        m.figures = {"goal": goal, "within": within}
    title = f"start-up of whole processes; the model has {size(settings)}"
    notes = ["files are in the page cache, as the warm-up round has read them"]
    return [BenchPart.of("startup", title, COLUMNS, measured, notes)]
