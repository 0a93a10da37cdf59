"""The stages download and corpus: from addresses to one parallel text, and its counts."""

import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.recipes import archive
from nmt.recipes.disk import size
from nmt.recipes.download import UnavailableError, fetch, local_file
from nmt.recipes.lock import PinnedCorpus
from nmt.recipes.stamp import RecipeJob, Stage
from nmt.system import atomic, manifest

log = logging.getLogger(__name__)
COUNTS = "corpus.json"  # in the directory of the text


def download(job: RecipeJob) -> Stage:
    """One archive of each corpus, from a folder or from the network."""
    accepted = {
        c.id: [[v.sha256 for v in a.versions] for a in c.archives] for c in job.lock.corpora
    }
    return Stage(
        job, "download", _missing(job), lambda: {"accepted": accepted}, partial(_download, job)
    )


def corpus(job: RecipeJob) -> Stage:
    """The named members of each archive, one behind the other: train.de, train.en."""
    members = [[c.id, c.pairs, c.columns] for c in job.lock.corpora]

    def inputs() -> dict[str, Any]:
        archives = list(download(job).outputs().values())
        return {"archives": archives, "members": members, "languages": job.lock.languages}

    text = [c.text for c in job.lock.corpora]  # each is extracted, then added to the whole
    return Stage(job, "corpus", sum(text) + max(text), inputs, partial(_corpus, job))


def _missing(job: RecipeJob) -> float:
    """Bytes that are still to be downloaded; parts of stopped downloads count as there."""
    folder, count = job.root / "downloads", 0
    for archives in (corpus.archives for corpus in job.lock.corpora):
        names = [archive.file for archive in archives]
        if not any((place / n).is_file() for place in (folder, *job.local) for n in names):
            part = folder / f"{names[0]}.part"
            there = part.stat().st_size if part.is_file() else 0
            count += max(0, max(version.size for version in archives[0].versions) - there)
    return count


def unavailable(stage: str, names: list[str], why: list[str], more: str = "") -> UserError:
    """The error (69) that names what cannot be downloaded, with a line for each address."""
    return UserError(
        f"{stage}: cannot be downloaded: {', '.join(names)}; fetch the files elsewhere and add "
        f"--local FOLDER{more}; the same command then goes on",
        Exit.UNAVAILABLE,
        why,
    )


def _download(job: RecipeJob) -> tuple[list[Path], str]:
    """Get all archives; one that is unavailable does not stop the others."""
    folder = job.root / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    paths, missing, why = list[Path](), list[str](), list[str]()
    for corpus in job.lock.corpora:
        try:
            paths.append(_archive(job, corpus, folder))
            for pinned in corpus.archives:  # one may have broken off before another was taken
                (folder / f"{pinned.file}.part").unlink(missing_ok=True)
        except UnavailableError as error:
            missing.append(corpus.id)
            why += error.why
    if missing:
        raise unavailable("download", missing, why, f", or put them into {folder}")
    return paths, ""


def _archive(job: RecipeJob, corpus: PinnedCorpus, folder: Path) -> Path:
    """The first archive of a corpus that is here, or else that can be downloaded."""
    for pinned in corpus.archives:
        if path := local_file(pinned, folder, job.local):
            return path
    why: list[str] = []
    for pinned in corpus.archives:
        try:
            return fetch(pinned, folder, job.mirror)
        except UnavailableError as error:
            why += error.why
    raise UnavailableError(why)


def _corpus(job: RecipeJob) -> tuple[list[Path], str]:
    """Write train.*, and its counts."""
    archives = download(job).outputs()
    finals = [job.root / f"train.{code}" for code in job.lock.languages]
    folder = atomic.temporary_of(job.root / "text")
    folder.mkdir()
    try:
        rows = [
            _append(job, corpus, job.root / name, folder) | {"file": Path(name).name, "sha256": sha}
            for corpus, (name, sha) in zip(job.lock.corpora, archives.items(), strict=True)
        ]
        for final in finals:
            atomic.move(folder / final.name, final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    counts = {
        "format": 3,
        "recipe": job.lock.name,
        "languages": list(job.lock.languages),
        "lines": sum(row["lines"] for row in rows),
        "corpora": rows,
        "paper": job.lock.paper._asdict(),
    }
    atomic.replace(job.root / COUNTS, manifest.dump(counts))
    return [*finals, job.root / COUNTS], _described(job, rows)


def _append(job: RecipeJob, corpus: PinnedCorpus, path: Path, folder: Path) -> dict[str, Any]:
    """Add the sides of a corpus to train.* in a folder; its counts."""
    codes, dropped = job.lock.languages, 0
    files = [folder / f"{i}.{code}" for i in range(max(1, len(corpus.pairs))) for code in codes]
    if corpus.columns:
        swapped = tuple(corpus.columns) != codes
        lines, dropped = archive.take_columns(path, swapped, files)
    else:
        names = [pair[code] for pair in corpus.pairs for code in codes]
        lines = archive.take_pairs(path, list(zip(names, files, strict=True)))
    log.info("  %s: %s pairs", corpus.id, f"{lines:,}")
    if corpus.lines not in (None, lines):
        log.warning(
            "%s: %s lines; elsewhere %s are stated; its hash is right, so we go on",
            *(corpus.id, f"{lines:,}", f"{corpus.lines:,}"),
        )
    count = 0
    for file in files:
        with file.open("rb") as text, (folder / f"train{file.suffix}").open("ab") as whole:
            shutil.copyfileobj(text, whole)
        count += file.stat().st_size
        file.unlink()
    return {
        "id": corpus.id,
        "lines": lines,
        "stated_lines": corpus.lines,
        "dropped": dropped,
        "bytes": count,
    }


def _described(job: RecipeJob, rows: list[dict[str, Any]]) -> str:
    """The counts of the corpus next to what others state, as a table."""
    everything = {key: sum(row[key] for row in rows) for key in ("lines", "dropped", "bytes")}
    lines = [f"{'corpus':<18}{'pairs':>14}{'stated':>14}{'blank, dropped':>18}{'text':>12}"]
    for row in [*rows, {"id": "all", "stated_lines": None, **everything}]:
        stated = f"{row['stated_lines']:,}" if row["stated_lines"] else "-"
        sizes = f"{row['dropped']:>18,}{size(row['bytes']):>12}"
        lines.append(f"{row['id']:<18}{row['lines']:>14,}{stated:>14}{sizes}")
    paper = job.lock.paper
    return "\n".join([*lines, f"Rosendahl et al. (2019): {paper.lines:,} pairs. {paper.note}\n"])
