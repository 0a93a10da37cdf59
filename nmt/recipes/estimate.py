"""Estimates of the disk and time that stages need, stated before they start.

The rates are meant to tell minutes from days, and enough disk from too little, on machines we do
not know; none is a promise. Sizes of downloads are exact, those of texts rough.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nmt import config
from nmt.errors import Exit, UserError

NETWORK = 10e6  # bytes/s of a download
UNPACK = 50e6  # bytes/s of text taken out of an archive, or copied and hashed
SETS = 20e6  # bytes of the archives that sacreBLEU keeps
LINE = 150  # bytes of a line
PIECES = 30  # pieces of a sentence
MOSES = 1000  # lines/s on one core, sacremoses
PLAIN = 20_000  # lines/s on one core without Moses, segmentation included
GPU, CPU = 3e13, 5e10  # floating point operations/s that training reaches
SAFETY = 1.1  # free disk per byte that is to be written


class Cost(NamedTuple):
    """Disk and time that are still needed."""

    disk: float = 0  # bytes
    seconds: float = 0


def size(count: float) -> str:
    """Bytes for people."""
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds for people."""
    for unit, least in (("days", 172800), ("hours", 7200), ("minutes", 120)):
        if seconds >= least:
            return f"{seconds / (least / 2):.0f} {unit}"
    return f"{max(1, seconds):.0f} s"


def total(costs: Iterable[Cost]) -> Cost:
    """Of stages one after the other."""
    disk, seconds = zip(*costs, strict=True)
    return Cost(sum(disk), sum(seconds))


def of_prepare(text: float, settings: config.Settings, cores: int) -> Cost:
    """So many bytes of text are tokenised, learned from and numbered, in two passes."""
    workers = min(cores, settings.data.workers or cores)
    rate = (MOSES if settings.segmenter.tokenizer == "moses" else PLAIN) * workers
    return Cost(3 * text, 2 * text / (2 * LINE) / rate)


def of_train(text: float, settings: config.Settings, weights: int, gpu: bool) -> Cost:
    """One run of so many weights: its checkpoints, and its updates."""
    trainer = settings.trainer
    epochs = (trainer.max_epochs or 10**9) * PIECES * text / (2 * LINE)
    tokens = min(epochs, (trainer.max_steps or 10**12) * trainer.batch_tokens * trainer.accumulate)
    kept = trainer.keep_checkpoints + 2  # best and newest, too; each has weights and two moments
    return Cost(12 * weights * kept, 6 * weights * tokens / (GPU if gpu else CPU))


def of_score(lines: int, settings: config.Settings, weights: int, gpu: bool) -> Cost:
    """Beam search of so many lines, on a GPU a twentieth as busy as in training."""
    work = 2 * weights * lines * PIECES * 8 * settings.decode.beam_size
    return Cost(400.0 * lines, work / (GPU / 20 if gpu else CPU))


def pieces(settings: config.Settings) -> int:
    """About how many pieces a vocabulary has."""
    choice = settings.segmenter
    unigram = isinstance(choice, config.UnigramLearning)
    return choice.vocabulary_size if unigram else choice.merges + 500


def check_disk(needed: Mapping[Path, float]) -> None:
    """Raise UserError (74) if directories are to hold more bytes than their disks have free."""
    disks: dict[int, tuple[Path, float]] = {}
    for where, more in needed.items():
        there = next(p for p in (where.absolute(), *where.absolute().parents) if p.exists())
        first, before = disks.get(there.stat().st_dev, (where, 0.0))
        disks[there.stat().st_dev] = first, before + more
        free = shutil.disk_usage(there).free
        if (before + more) * SAFETY > free:
            raise UserError(
                f"{first}: takes about {size(before + more)}, but only {size(free)} are free; "
                "make room, or choose another disk by --root and --runs",
                Exit.IO,
            )
