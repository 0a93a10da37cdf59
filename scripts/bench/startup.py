"""Start-up: how long until a command says something, and until the first translated sentence."""

import sys
from statistics import median

from nmt import config
from scripts.bench import corpus, weights
from scripts.bench.places import Setup
from scripts.bench.rounds import Command, Contestant, race
from scripts.bench.table import Part, figure, ranged
from scripts.bench.training import VOCAB, size

GOALS = {"--help": 0.5, "first sentence": 3.0}  # seconds
HELP = ("train", "translate", "evaluate", "prepare", "encodings")
WORDS = ("decode.max_length_ratio=0", "decode.max_length_offset=32")


def part(settings: config.Settings, setup: Setup) -> Part:
    """Measure whole commands, each from a process that has nothing loaded yet."""
    vocab = 200 if setup.quick else VOCAB
    place = setup.directory / "startup"
    place.mkdir()
    model, _ = weights.make(place, settings, vocab)
    lines = place / "line"
    lines.write_text(corpus.text(1, vocab, settings.seed)[0] + "\n", encoding="utf-8")
    python = (sys.executable, "-m")
    goals: list[float | None] = [None, None]
    contestants: list[Contestant] = [
        Command("python -c pass", [sys.executable, "-c", "pass"], setup.threads),
        Command("python -c 'import torch'", [sys.executable, "-c", "import torch"], setup.threads),
    ]
    for name in HELP[:2] if setup.quick else HELP:
        argv = [*python, f"nmt.cli.{name}", "--help"]
        contestants.append(Command(f"nmt-{name} --help", argv, setup.threads))
        goals.append(GOALS["--help"])
    first = ["nmt.cli.translate", str(model), str(lines), "-o", str(place / "out")]
    device = ["--device", setup.device, "--threads", str(setup.threads)]
    contestants.append(
        Command("nmt-translate, first sentence", [*python, *first, *device], setup.threads)
    )
    goals.append(GOALS["first sentence"])
    entries = race(contestants, setup.rounds)
    rows, found = [], []
    for entry, goal in zip(entries, goals, strict=True):
        within = None if goal is None or not entry.rounds else median(entry.seconds) <= goal
        found.append(entry.to_json() | {"goal": goal, "within": within})
        said = "" if within is None else "yes" if within else "no"
        rows.append(
            [
                entry.name,
                ranged(entry.seconds, "{:.2f}"),
                figure(goal, "{:.1f}"),
                said,
                entry.failed or "",
            ]
        )
    return Part(
        "startup",
        f"start-up of whole processes; the model has {size(settings)}",
        ["", "seconds", "goal", "within", ""],
        rows,
        ["files are in the page cache, as the warm-up round has read them"],
        {"entries": found},
    )
