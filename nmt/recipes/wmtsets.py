"""The stage tests: development and test sets, from local files or through sacreBLEU's registry."""

import logging
import socket
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt import atomic
from nmt.errors import Exit, UserError
from nmt.manifest import sha256_of
from nmt.recipes.download import UnavailableError
from nmt.recipes.lock import TestSet
from nmt.recipes.work import RecipeJob, StageItem

log = logging.getLogger(__name__)
ALL, JOINED = "newstest_all", "concat_seq"


def tests(job: RecipeJob) -> list[StageItem]:
    """All sets as test/NAME.de and .en; the development text; newstest_all and concat_seq."""
    lock = job.lock
    names = list(dict.fromkeys((*lock.dev, *lock.test, *lock.all)))
    return [_single(job, lock.sets[name]) for name in names]


def joined(job: RecipeJob) -> list[StageItem]:
    """What is made of the sets, when they are there: dev.de, dev.en, newstest_all, concat_seq."""
    lock, before = job.lock, job.ledger("tests")
    for name in (*lock.dev, *lock.all):
        before.facts(name, "tests")
    works = [StageItem("dev", {"sets": _hashes(job, lock.dev)}, lambda: _dev(job))]
    if lock.all:
        works.append(StageItem(ALL, {"sets": _hashes(job, lock.all)}, lambda: _all(job)))
    return works


def sacrebleu_directory() -> Path:
    """Where sacreBLEU keeps the archives of the test sets that it downloads."""
    from sacrebleu.utils import SACREBLEU_DIR

    return Path(SACREBLEU_DIR)


def by_sacrebleu(job: RecipeJob) -> list[str]:
    """The sets that no folder of --local has; raises UserError as the stage does."""
    lock = job.lock
    names = dict.fromkeys((*lock.dev, *lock.test, *lock.all))
    return [name for name in names if _local(job, name) is None]


def _sides(job: RecipeJob, folder: Path, name: str) -> tuple[Path, Path]:
    source, target = (folder / f"{name}.{code}" for code in job.lock.languages)
    return source, target


def _hashes(job: RecipeJob, names: Sequence[str]) -> list[Any]:
    ledger = job.ledger("tests")
    return [[name, ledger.outputs(name)] for name in names]


def _local(job: RecipeJob, name: str) -> tuple[Path, Path] | None:
    for folder in job.local:
        source, target = _sides(job, folder, name)
        if source.is_file() and target.is_file():
            return source, target
        if source.is_file() or target.is_file():
            raise UserError(
                f"{folder}: has only one side of {name}; put {source.name} and {target.name} there",
                Exit.NO_INPUT,
            )
    return None


def _single(job: RecipeJob, test: TestSet) -> StageItem:
    local = _local(job, test.name)
    # without a folder now, what a folder gave before is still good
    before = job.ledger("tests").inputs(test.name).get("local")
    inputs = {
        "sacrebleu": test.sacrebleu,
        "lines": test.lines,
        "local": [sha256_of(path) for path in local] if local else before,
    }

    def make() -> tuple[list[Path], dict[str, Any]]:
        paths, origin = (local, str(local[0].parent)) if local else _registered(job, test)
        folder = job.root / "test"
        folder.mkdir(parents=True, exist_ok=True)
        outs = _sides(job, folder, test.name)
        data = [path.read_bytes() for path in paths]
        lines = [text.count(b"\n") + (not text.endswith(b"\n")) for text in data]
        for path, count in zip(paths, lines, strict=True):
            if count != (test.lines or lines[0]):
                raise UserError(
                    f"{path}: {count} lines; {test.name} has {test.lines or lines[0]}",
                    Exit.DATA,
                )
        for out, text in zip(outs, data, strict=True):
            atomic.replace(out, text if text.endswith(b"\n") else text + b"\n")
        log.info("  %s: %d pairs, %s", test.name, lines[0], origin)
        return list(outs), {"lines": lines[0], "origin": origin}

    return StageItem(test.name, inputs, make)


def _registered(job: RecipeJob, test: TestSet) -> tuple[tuple[Path, Path], str]:
    """A set as sacreBLEU downloads it; UnavailableError names the files to fetch by hand."""
    from sacrebleu.utils import get_reference_files, get_source_file

    pair = f"{job.lock.source}-{job.lock.target}"
    try:
        with _guarded():
            source = get_source_file(test.sacrebleu, pair)
            references = get_reference_files(test.sacrebleu, pair)
    except SystemExit:  # how sacreBLEU leaves when MD5 or certificate are wrong
        place = sacrebleu_directory() / test.sacrebleu
        why = f"sacreBLEU refuses its download; remove {place} to retry"
    except (OSError, EOFError, tarfile.TarError) as error:
        why = f"sacreBLEU's {test.sacrebleu}: {error}"
    else:
        return (Path(source), Path(references[0])), f"sacreBLEU's {test.sacrebleu}"
    files = " and ".join(f"{test.name}.{code}" for code in job.lock.languages)
    raise UnavailableError([f"{test.name} ({files}): {why}"])


@contextmanager
def _guarded() -> Iterator[None]:
    """Let sacreBLEU neither wait for ever nor write outside of its directory."""
    timeout, filter_before = (
        socket.getdefaulttimeout(),
        tarfile.TarFile.__dict__.get("extraction_filter"),
    )
    socket.setdefaulttimeout(60)
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        yield
    finally:
        socket.setdefaulttimeout(timeout)
        if filter_before is None:
            del tarfile.TarFile.extraction_filter
        else:
            tarfile.TarFile.extraction_filter = filter_before


def _dev(job: RecipeJob) -> tuple[list[Path], dict[str, Any]]:
    outs = _sides(job, job.root, "dev")
    for side, out in enumerate(outs):
        parts = [_sides(job, job.root / "test", name)[side].read_bytes() for name in job.lock.dev]
        atomic.replace(out, b"".join(parts))
    return list(outs), {"sets": list(job.lock.dev)}


def _all(job: RecipeJob) -> tuple[list[Path], dict[str, Any]]:
    from nmt.recipes.testsets import build

    folder = job.root / "test"
    pairs = [(name, *_sides(job, folder, name)) for name in job.lock.all]
    records = [folder / f"{name}.json" for name in (ALL, JOINED)]
    for record in records:  # a damaged one would be taken for a stranger's file
        record.unlink(missing_ok=True)
    built = build(pairs, folder, *job.lock.languages)
    texts = [*built.whole, *built.joined]
    return [*texts, *records], {"lines": sum(len(p.sources) for p in built.portions)}
