"""The stage tests: development and test sets, from local files or through sacreBLEU's registry."""

import logging
import socket
import tarfile
from collections.abc import Sequence
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.recipes.download import UnavailableError
from nmt.recipes.stages import unavailable
from nmt.recipes.stamp import RecipeJob, Stage
from nmt.system import atomic
from nmt.system.manifest import sha256_of

log = logging.getLogger(__name__)
DISK = 10e6  # bytes of all sets
ALL = "newstest_all"  # all sets of ten years, one after the other


def tests(job: RecipeJob) -> Stage:
    """All sets as test/NAME.de and .en; the development text; newstest_all."""
    local = {name: _local(job, name) for name in job.lock.sets}

    def inputs() -> dict[str, Any]:
        """Of local files, those that are there: what a folder gave before is good without it."""
        sets = {name: known._asdict() for name, known in job.lock.sets.items()}
        hashes = {name: list(map(sha256_of, paths)) for name, paths in local.items() if paths}
        return {"sets": sets, "dev": job.lock.dev, "all": job.lock.all, **hashes}

    return Stage(job, "tests", DISK, inputs, partial(_tests, job, local))


def _sides(job: RecipeJob, folder: Path, name: str) -> tuple[Path, Path]:
    source, target = (folder / f"{name}.{code}" for code in job.lock.languages)
    return source, target


def _local(job: RecipeJob, name: str) -> tuple[Path, Path] | None:
    for folder in job.local:
        sides = _sides(job, folder, name)
        there = [path for path in sides if path.is_file()]
        if len(there) == 1:
            names = " and ".join(path.name for path in sides)
            raise UserError(
                f"{folder}: has only one side of {name}; put {names} there", Exit.NO_INPUT
            )
        if there:
            return sides
    return None


def _tests(job: RecipeJob, local: dict[str, tuple[Path, Path] | None]) -> tuple[list[Path], str]:
    """Write all sets; one that is unavailable does not stop the others."""
    folder = job.root / "test"
    folder.mkdir(parents=True, exist_ok=True)
    outputs, missing, why = list[Path](), list[str](), list[str]()
    for name in job.lock.sets:
        outs = _sides(job, folder, name)
        try:
            _copy(job, name, local[name] or _from_sacrebleu(job, name), outs)
        except UnavailableError as error:
            missing.append(name)
            why += error.why
        outputs += outs
    if missing:
        raise unavailable("tests", missing, why)
    together = [
        (_sides(job, job.root, "dev"), list(job.lock.dev)),
        *([(_sides(job, folder, ALL), list(job.lock.all))] if job.lock.all else []),
    ]
    for outs, names in together:
        for side, out in enumerate(outs):
            texts = [_sides(job, folder, name)[side].read_bytes() for name in names]
            atomic.replace(out, b"".join(texts))
        outputs += outs
    return outputs, ""


def _copy(job: RecipeJob, name: str, paths: Sequence[Path], outs: Sequence[Path]) -> None:
    """Write both sides of a set; UserError (65) for another number of lines than it has."""
    expected = job.lock.sets[name].lines
    texts = [path.read_bytes() for path in paths]
    for path, text in zip(paths, texts, strict=True):
        count = text.count(b"\n") + (not text.endswith(b"\n"))
        expected = expected or count
        if count != expected:
            advice = "" if path.parent in job.local else f"; remove {path.parent} to retry"
            raise UserError(f"{path}: {count} lines; {name} has {expected}{advice}", Exit.DATA)
    for out, text in zip(outs, texts, strict=True):
        atomic.replace(out, text if text.endswith(b"\n") else text + b"\n")
    log.info("  %s: %d pairs, from %s", name, expected, paths[0].parent)


def _from_sacrebleu(job: RecipeJob, name: str) -> tuple[Path, Path]:
    """A set as sacreBLEU downloads it; UnavailableError names the files to fetch by hand.

    It compares the MD5 of an archive once, before it extracts it; what a full disk left of either
    stays as it is.
    """
    from portalocker.exceptions import AlreadyLocked, LockException
    from sacrebleu.utils import SACREBLEU_DIR, get_reference_files, get_source_file

    known, pair = job.lock.sets[name].sacrebleu, "-".join(job.lock.languages)
    place = Path(SACREBLEU_DIR) / known
    files = " and ".join(f"{name}.{code}" for code in job.lock.languages)
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60)  # sacreBLEU would wait for ever
    try:
        source = get_source_file(known, pair)
        return Path(source), Path(get_reference_files(known, pair)[0])
    except SystemExit:  # how sacreBLEU leaves when MD5 or certificate are wrong
        why = "sacreBLEU refuses its download"
    except AlreadyLocked:
        why = f"another process is downloading sacreBLEU's {known}; wait for it"
        raise UnavailableError([f"{name} ({files}): {why}"]) from None
    except (OSError, EOFError, HTTPException, LockException, tarfile.TarError) as error:
        why = f"sacreBLEU's {known}: {error}"
    finally:
        socket.setdefaulttimeout(timeout)
    if any(path.is_file() and path.stat().st_size for path in place.rglob("*")):
        why += f"; remove {place} to retry"
    raise UnavailableError([f"{name} ({files}): {why}"])
