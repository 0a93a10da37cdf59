"""What a stage will need, told before it starts: disk, memory and time, by simple stated rates.

The rates are meant to tell minutes from days, and enough disk from too little, on machines we do
not know; none is a promise. Sizes of downloads are exact, those of texts rough.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt import config
from nmt.errors import Exit, UserError
from nmt.recipes.lock import PinnedCorpus
from nmt.recipes.work import RecipeJob

NETWORK = 10e6  # bytes/s of a download
UNPACK = 50e6  # bytes/s of text out of an archive
COPY = 200e6  # bytes/s of text copied and hashed
SETS = 20e6  # bytes of all test sets with sacreBLEU's archives
MOSES = 1000  # lines/s on one core, sacremoses
PLAIN = 20_000  # lines/s on one core without Moses, segmentation included
LINE = 150  # bytes of a line, where nobody has counted lines
PIECES = 30  # pieces of a sentence
WORDS = 1.5  # bytes of memory per byte of text, to count words for BPE ...
WORDS_MOST = 6e9  # ... up to here: most words are in the first gigabytes
SUFFIXES = 20  # bytes of memory per byte of text, for SentencePiece's suffix array
GPU, CPU = 3e13, 5e10  # floating point operations/s that training reaches
BEAM = 8  # how much longer translating takes than training on the same sentence once
SAFETY = 1.1  # of the free disk asked for


class StageNeeds(NamedTuple):
    """What a stage will take in addition to what is there."""

    disk: float = 0  # bytes
    memory: float = 1e8  # bytes
    seconds: float = 1

    def __str__(self) -> str:
        return (
            f"about {size(self.disk)} of disk, {size(self.memory)} of memory, "
            f"{duration(self.seconds)} (rough)"
        )


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


def total(needs: Sequence[StageNeeds]) -> StageNeeds:
    """Of stages one after the other: disk and time add up, memory is that of the largest."""
    return StageNeeds(
        sum(each.disk for each in needs),
        max(each.memory for each in needs),
        sum(each.seconds for each in needs),
    )


def of_download(job: RecipeJob, items: Sequence[str] | None) -> StageNeeds:
    """Exact bytes of what is missing; parts of stopped downloads count as there."""
    missing = 0
    for corpus in _of(job, items):
        first = corpus.archives[0]
        if any((folder / first.file).is_file() for folder in (job.root / "downloads", *job.local)):
            continue
        part = job.root / "downloads" / f"{first.file}.part"
        there = part.stat().st_size if part.is_file() else 0
        missing += max(0, max(version.size for version in first.versions) - there)
    return StageNeeds(missing, seconds=missing / NETWORK)


def of_extract(job: RecipeJob, items: Sequence[str] | None) -> StageNeeds:
    """The texts that are to be taken out."""
    text = sum(corpus.text for corpus in _of(job, items))
    return StageNeeds(text, seconds=text / UNPACK)


def of_corpus(job: RecipeJob, items: Sequence[str] | None) -> StageNeeds:
    """All texts once more."""
    text = 0 if items == [] else text_bytes(job)
    return StageNeeds(text, seconds=text / COPY)


def of_tests(job: RecipeJob, items: Sequence[str] | None) -> StageNeeds:
    """Test sets, and the time for the archives that sacreBLEU keeps."""
    return StageNeeds() if items == [] else StageNeeds(SETS / 4, seconds=SETS / NETWORK)


def of_joined(job: RecipeJob, items: Sequence[str] | None) -> StageNeeds:
    """The test sets once more, and joined; the development text."""
    return StageNeeds() if items == [] else StageNeeds(SETS / 4)


def of_prepare(job: RecipeJob, settings: config.Settings, cores: int) -> StageNeeds:
    """Words between the passes and numbers after them; hash, tokenise, learn, number."""
    text, lines = text_bytes(job), text_lines(job)
    choice = settings.segmenter
    if isinstance(choice, config.UnigramLearning):
        sampled = min(1.0, choice.training_lines / lines) if choice.training_lines else 1.0
        memory = SUFFIXES * text * sampled / (1 if choice.shared_vocabulary else 2)
    else:
        memory = min(WORDS * text, WORDS_MOST)
    workers = min(cores, settings.data.workers or cores)
    rate = (MOSES if choice.tokenizer == "moses" else PLAIN) * workers
    return StageNeeds(3 * text, memory + 2e8 * workers, 2 * lines / rate + text / UNPACK)


def of_train(job: RecipeJob, settings: config.Settings, weights: int, gpu: bool) -> StageNeeds:
    """One run of so many weights: its checkpoints, gradients and moments, and the updates."""
    trainer = settings.trainer
    batch = trainer.batch_tokens * trainer.accumulate
    epochs = (trainer.max_epochs or 10**9) * text_lines(job) * PIECES
    tokens = min(epochs, (trainer.max_steps or 10**12) * batch)
    model = settings.model
    layers = model.encoder_layers + model.decoder_layers
    activations = 4 * trainer.batch_tokens * (34 * model.dim * layers + 3 * pieces(settings))
    return StageNeeds(
        disk=12 * weights * (trainer.keep_checkpoints + 2),  # weights and moments; best, newest
        memory=16 * weights + activations + 1e9,
        seconds=6 * weights * tokens / (GPU if gpu else CPU),
    )


def of_score(lines: int, settings: config.Settings, weights: int, gpu: bool) -> StageNeeds:
    """Beam search of so many lines, those of all systems together, and the bootstrap."""
    work = 2 * weights * lines * PIECES * BEAM * settings.decode.beam_size
    return StageNeeds(
        disk=400.0 * lines,
        memory=8 * weights + 2e9,
        seconds=work / (GPU / 20 if gpu else CPU) + lines / 50,
    )


def pieces(settings: config.Settings) -> int:
    """About how many pieces the vocabularies have."""
    choice = settings.segmenter
    return (
        choice.vocabulary_size
        if isinstance(choice, config.UnigramLearning)
        else choice.merges + 500
    )


def text_bytes(job: RecipeJob) -> float:
    """Bytes of the training text, as it lies there or as the lock file estimates."""
    paths = [job.root / f"train.{code}" for code in job.lock.languages]
    if all(path.is_file() for path in paths):
        return sum(path.stat().st_size for path in paths)
    return sum(corpus.text for corpus in job.corpora)


def text_lines(job: RecipeJob) -> float:
    """Pairs of the training text, as counted or as estimated."""
    facts = job.ledger("corpus").facts_or_none("train")
    return max(1, facts["lines"] if facts else text_bytes(job) / (2 * LINE))


def check_disk(needed: Mapping[Path, float]) -> None:
    """Raise UserError (74) if directories are to hold more bytes than their disks have free."""
    disks: dict[int, tuple[Path, float]] = {}
    for where, more in needed.items():
        there = next(
            path for path in (where.absolute(), *where.absolute().parents) if path.exists()
        )
        first, before = disks.get(there.stat().st_dev, (where, 0.0))
        disks[there.stat().st_dev] = first, before + more
        free = shutil.disk_usage(there).free
        if before + more and (before + more) * SAFETY > free:
            raise UserError(
                f"{first}: takes about {size(before + more)}, but only {size(free)} are free; "
                "make room, or choose another disk by --root and --runs",
                Exit.IO,
            )


def _of(job: RecipeJob, items: Sequence[str] | None) -> list[PinnedCorpus]:
    """The corpora of these names; all for None."""
    return [corpus for corpus in job.corpora if items is None or corpus.id in items]
