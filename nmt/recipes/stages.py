"""The stages download, extract and corpus: from addresses to one parallel text, and its counts."""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt import atomic, manifest
from nmt.errors import Exit, UserError
from nmt.recipes import archive
from nmt.recipes.download import UnavailableError, fetch, here
from nmt.recipes.estimate import size
from nmt.recipes.lock import PinnedCorpus
from nmt.recipes.work import RecipeJob, StageItem, progress

log = logging.getLogger(__name__)
COUNTS = "corpus.json"  # beside the text
BLOCK = 1 << 20  # bytes copied at once
SIDE = re.compile(r"[0-9]+\.[a-z]+")  # names of extracted texts: see `_names`


def download(job: RecipeJob) -> list[StageItem]:
    """One archive of each corpus, from a folder or from the network."""
    folder = job.root / "downloads"

    def make(corpus: PinnedCorpus) -> tuple[list[Path], dict[str, Any]]:
        folder.mkdir(parents=True, exist_ok=True)
        why: list[str] = []
        for pinned in corpus.archives:
            if got := here(pinned, folder, job.local):
                break
        else:
            for pinned in corpus.archives:
                try:
                    got = fetch(pinned, folder, job.mirror, job.patience, progress)
                    break
                except UnavailableError as error:
                    why += error.why
            else:
                raise UnavailableError(why)
        log.info("  %s, %s bytes, %s", got.path.name, f"{got.version.size:,}", got.origin)
        facts = {
            "path": str(got.path.resolve()),
            "file": pinned.file,
            "kind": pinned.kind,
            "bytes": got.version.size,
            "sha256": got.version.sha256,
            "origin": got.origin,
        }
        return [got.path], facts

    return [
        StageItem(
            corpus.id,
            {"accepted": [[a.file, *(v.sha256 for v in a.versions)] for a in corpus.archives]},
            lambda corpus=corpus: make(corpus),  # type: ignore[misc]
        )
        for corpus in job.corpora
    ]


def _refuse_others(final: Path) -> None:
    """Raise UserError (73) for a file that is no text of an archive, where all is to be removed."""
    for path in sorted(final.iterdir()) if final.is_dir() else ():
        if not SIDE.fullmatch(path.name):
            raise UserError(
                f"{path}: in the way of the text, which is extracted anew; move it away",
                Exit.CANT_CREATE,
            )


def extract(job: RecipeJob) -> list[StageItem]:
    """The members of each archive that are named, as text/CORPUS/0.de, 0.en, 1.de, ..."""
    before = job.ledger("download")
    folder = job.root / "text"

    def make(corpus: PinnedCorpus, got: Mapping[str, Any]) -> tuple[list[Path], dict[str, Any]]:
        folder.mkdir(parents=True, exist_ok=True)
        final = folder / corpus.id
        temporary = atomic.temporary_of(final)
        _refuse_others(final)
        temporary.mkdir()
        try:
            sides = _take(job, corpus, got, temporary)
            if final.exists():
                atomic.discard(final)
            temporary.rename(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        lines = sum(pair.source.lines for pair in sides)
        if corpus.lines is not None and lines != corpus.lines:
            log.warning(
                "%s: %s lines; elsewhere %s are stated; its hash is right, so we go on",
                *(corpus.id, f"{lines:,}", f"{corpus.lines:,}"),
            )
        facts = {
            "file": got["file"],
            "sha256": got["sha256"],
            "lines": lines,
            "dropped": sum(pair.dropped for pair in sides),
        }
        return [final / name for both in _names(job, len(sides)) for name in both], facts

    works = []
    for corpus in job.corpora:
        got = before.facts(corpus.id, "download")
        inputs = {
            "sha256": got["sha256"],
            "members": corpus.pairs,
            "columns": corpus.columns,
            "cap": corpus.cap,
            "languages": job.lock.languages,
        }
        works.append(
            StageItem(corpus.id, inputs, lambda corpus=corpus, got=got: make(corpus, got))  # type: ignore[misc]
        )
    return works


def corpus(job: RecipeJob) -> list[StageItem]:
    """All texts one behind the other, in the order of the lock file: train.de, train.en."""
    before = job.ledger("extract")
    facts = {c.id: before.facts(c.id, "extract") for c in job.corpora}
    texts = {c.id: before.outputs(c.id) for c in job.corpora}

    def make() -> tuple[list[Path], dict[str, Any]]:
        finals = [job.root / f"train.{code}" for code in job.lock.languages]
        parts = [path.with_name(f"{path.name}.part") for path in finals]
        counts = []
        with parts[0].open("wb") as source, parts[1].open("wb") as target:
            for corpus in job.corpora:
                sides = [
                    _append(job, corpus.id, texts, side, out)
                    for side, out in enumerate((source, target))
                ]
                counts.append(
                    {
                        "id": corpus.id,
                        "stated_lines": corpus.lines,
                        **facts[corpus.id],
                        "source": sides[0],
                        "target": sides[1],
                    }
                )
        for part, final in zip(parts, finals, strict=True):
            atomic.sync(part)
            os.replace(part, final)  # noqa: PTH105
        atomic.sync(job.root)
        summary = _counts(job, counts)
        atomic.replace(job.root / COUNTS, manifest.dump(summary))
        return [*finals, job.root / COUNTS], {"lines": summary["lines"]}

    return [StageItem("train", {"texts": [[c.id, texts[c.id]] for c in job.corpora]}, make)]


def describe(job: RecipeJob) -> str:
    """The counts of the corpus beside what others state, as a table."""
    summary = manifest.parse((job.root / COUNTS).read_bytes(), job.root / COUNTS)
    rows = [("corpus", "pairs", "stated", "blank, dropped", "text")]
    for row in summary["corpora"]:
        stated = f"{row['stated_lines']:,}" if row["stated_lines"] else "-"
        text = row["source"]["bytes"] + row["target"]["bytes"]
        rows.append((row["id"], f"{row['lines']:,}", stated, f"{row['dropped']:,}", size(text)))
    total = sum(row[side]["bytes"] for row in summary["corpora"] for side in ("source", "target"))
    dropped = sum(row["dropped"] for row in summary["corpora"])
    rows.append(("all", f"{summary['lines']:,}", "", f"{dropped:,}", size(total)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    paper = job.lock.paper
    return "\n".join([*lines, f"Rosendahl et al. (2019): {paper.lines:,} pairs. {paper.note}"])


def _take(
    job: RecipeJob, corpus: PinnedCorpus, got: Mapping[str, Any], folder: Path
) -> list[archive.SidesFacts]:
    path = Path(got["path"])
    outs = [
        (folder / source, folder / target)
        for source, target in _names(job, max(1, len(corpus.pairs)))
    ]
    if corpus.columns is not None:
        swapped = corpus.columns != job.lock.languages
        return [archive.take_columns(path, swapped, outs[0], corpus.cap)]
    return archive.take_pairs(path, got["kind"], corpus.pairs, outs, corpus.cap)


def _names(job: RecipeJob, pairs: int) -> list[tuple[str, str]]:
    source, target = job.lock.languages
    return [(f"{i}.{source}", f"{i}.{target}") for i in range(pairs)]


def _append(
    job: RecipeJob, name: str, texts: Mapping[str, Mapping[str, str]], side: int, out: Any
) -> dict[str, Any]:
    """Copy one side of a corpus; UserError (65) if it is not what was extracted."""
    code = job.lock.languages[side]
    count, whole = 0, hashlib.sha256()
    for short, sha256 in texts[name].items():
        if not short.endswith(f".{code}"):
            continue
        copied = hashlib.sha256()
        with (job.root / short).open("rb") as file:
            while block := file.read(BLOCK):
                out.write(block)
                copied.update(block)
                whole.update(block)
                count += len(block)
        if copied.hexdigest() != sha256:
            raise UserError(
                f"{job.root / short}: changed since it was extracted; the stage extract makes it "
                "again",
                Exit.DATA,
            )
    return {"bytes": count, "sha256": whole.hexdigest()}


def _counts(job: RecipeJob, counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    paper = job.lock.paper
    return {
        "format": 1,
        "recipe": job.lock.name,
        "options": dict(job.picked),
        "languages": list(job.lock.languages),
        "lines": sum(row["lines"] for row in counts),
        "corpora": list(counts),
        "paper": {
            "lines": paper.lines,
            "percent_over_100": paper.over_100,
            "percent_from_76_to_100": paper.from_76_to_100,
            "note": paper.note,
        },
    }
