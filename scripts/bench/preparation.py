"""Preparation: text files to a store of ids, beside sacremoses and subword-nmt used plainly."""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from nmt import config
from nmt.data.prepare import load
from nmt.data.store import SIDES
from scripts.bench import words
from scripts.bench.places import SCRIPTS, Setup, own
from scripts.bench.rounds import Contestant, Entry, Worker, race, ratio, write_job
from scripts.bench.table import GIGA, Part, figure, ranged

PAIRS, FEW = 40_000, 200  # enough that `data.workers` by default starts several processes
MERGES = 8000
MILLION = 1e6
WORDS = (  # what nmt-train would be told
    *("data=files", "data.max_length=10000", "segmenter=bpe"),
    *("data.source_language=de", "data.target_language=en"),
)


def part(settings: config.Settings, setup: Setup) -> Part:
    """Measure whole preparations: as many processes as threads, one process, and the plain way."""
    root = setup.directory / "text"
    files(root, FEW if setup.quick else PAIRS)
    merges = 100 if setup.quick else MERGES
    contestants: list[Contestant] = [
        ours(settings, root, workers, merges, setup) for workers in sorted({setup.threads, 1})[::-1]
    ]
    outputs = [str(setup.directory / f"plain.{side}") for side in SIDES]
    job = write_job(
        setup.directory / "plain.json",
        texts=[str(root / "train.de"), str(root / "train.en")],
        languages=["de", "en"],
        merges=merges,
        min_frequency=settings.segmenter.min_frequency,
        outputs=outputs,
    )
    plain = [sys.executable, str(SCRIPTS / "plain_text.py"), job]
    contestants.append(Worker("sacremoses + subword-nmt, 1 process", plain, 1))
    entries = race(contestants, min(setup.rounds, 3), warmup=0)
    return report(entries, [Path(path) for path in outputs])


def files(root: Path, pairs: int) -> None:
    """Write a corpus of text files."""
    root.mkdir(parents=True)
    for split, count in (("train", pairs), ("dev", 20)):
        for number, language in enumerate(("de", "en")):
            words.write(root / f"{split}.{language}", words.text(count, 10 * number + len(split)))


def ours(
    settings: config.Settings, root: Path, workers: int, merges: int, setup: Setup
) -> Contestant:
    """The product's preparation of the text below a directory, by so many processes."""
    cache = setup.directory / f"prepared-{workers}-{root.name}"
    names: dict[str, Any] = {
        f"{split}_{side}": str(root / f"{split}.{language}")
        for split in ("train", "dev")
        for side, language in zip(SIDES, ("de", "en"), strict=True)
    }
    data = replace(settings.data, cache=str(cache), workers=workers, **names)
    chosen = replace(settings, data=data, segmenter=replace(settings.segmenter, merges=merges))
    job = write_job(
        setup.directory / f"prepare-{workers}-{root.name}.json", settings=config.freeze(chosen)
    )
    plural = "es" if workers > 1 else ""
    name = f"nmt, {workers} process{plural}"
    return Worker(name, own("scripts.bench.preparing", job), 1)


def report(entries: list[Entry], outputs: list[Path]) -> Part:
    """The table; the last entry is the plain way."""
    plain = entries[-1]
    rows, found = [], []
    for entry in entries:
        beside = ratio(entry, plain) if entry.rounds else None
        cpu = [each["cpu_seconds"] / each["units"] * MILLION for each in entry.rounds]
        memory = entry.last("peak_bytes")
        same = agreement(entry, outputs) if entry is not plain and plain.rounds else None
        for each in entry.rounds:
            each.pop("path", None)
        found.append(entry.to_json() | {"over plain": beside, "equal lines": same})
        rows.append(
            [
                entry.name,
                ranged(entry.rates),
                figure(beside, "{:.2f}"),
                figure(median(entry.rates) and MILLION / median(entry.rates), "{:,.0f}")
                if entry.rounds
                else "-",
                figure(median(cpu) if cpu else None, "{:,.0f}"),
                figure(memory and memory / GIGA, "{:.2f}"),
                figure(same, "{:.2%}"),
                entry.failed or "",
            ]
        )
    parts = plain.last("parts") or {}
    notes = ["whole preparation: normalise, tokenise (Moses), learn merges, segment, write"]
    if parts:
        shares = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
        notes.append(f"the plain way, last round: {shares}")
    return Part(
        "preparation",
        "preparation: lines of both sides",
        ["", "lines/s", "/plain", "s/million", "CPU s/million", "GB", "same output", ""],
        rows,
        notes,
        {"entries": found, "notes": notes},
    )


def agreement(entry: Entry, outputs: list[Path]) -> float | None:
    """The share of lines that are, in pieces, what the plain way wrote."""
    where = entry.last("path")
    if where is None:
        return None
    prepared = load(Path(where))
    same = total = 0
    for number, (side, path) in enumerate(
        zip((prepared.source, prepared.target), outputs, strict=True)
    ):
        for i, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1]):
            ids = prepared.train.pair(i)[number]
            same += " ".join(side.vocabulary.pieces(ids.tolist())) == line
            total += 1
    return same / total
