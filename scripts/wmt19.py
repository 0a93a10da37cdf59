"""Makes the training text and test sets of Rosendahl et al. (2019).

  python -m scripts.wmt19 deen                         all stages, hours
  python -m scripts.wmt19 deen --list                  what it downloads, to fetch by hand
  python -m scripts.wmt19 deen --local DIR download    files fetched by hand

Stages, in this order (all, unless you name one):
  download  fetches the archives, resuming where it stopped, and checks their SHA-256
  corpus    joins the parallel text of all archives to train.*; counts in corpus.json
  tests     writes dev.*, the test sets, and newstest_all

What is finished is skipped, so the same command continues after an interruption. Before the first
download, the disk that all stages need is printed; at the end, the commands that make the paper's
tables from the text.
"""

import logging
import shlex
import shutil
import socket
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nmt.cli.command import run
from nmt.cli.options import Parser
from nmt.config import check
from nmt.errors import Exit, UserError
from nmt.system import atomic, manifest, outputs
from nmt.system.manifest import sha256_of
from scripts import archives
from scripts.archives import Archive

log = logging.getLogger("nmt.wmt19")  # of nmt: what servers say cannot move the cursor
RECIPES = {path.stem: path for path in sorted((Path(__file__).parent / "wmt19").glob("*.toml"))}
SAFETY = 1.1  # free disk per byte that is to be written
UNAVAILABLE = "some files cannot be downloaded; add --local DIR with them, and the command goes on"
COUNTS, SETS = "corpus.json", "tests.json"  # records of what is finished, below the root


@dataclass(frozen=True)
class CorpusSource:
    """Where a parallel text comes from, and which members of the archive are its sides."""

    id: str
    about: str
    archives: list[Archive]  # with the same text; the first available is used
    text_mb: int  # rough size of both sides together, for the disk that is needed
    lines: int | None = None  # as a public source states them
    columns: list[str] = field(default_factory=list)  # languages of a .tsv.gz; more may follow
    pairs: list[dict[str, list[str]]] = field(default_factory=list)  # language -> possible names


@dataclass(frozen=True)
class TestSet:
    """A test or development set, by sacreBLEU's name."""

    sacrebleu: str
    lines: int | None = None


@dataclass(frozen=True)
class Recipe:
    """A TOML file: archives pinned by size and SHA-256, what is extracted, and test sets."""

    name: str  # of conf/data
    title: str
    languages: list[str]  # source, target
    paper: str  # how many pairs the paper has
    commands: list[str]  # train the paper's runs on the text, and make a table of them
    corpora: list[CorpusSource]
    sets: dict[str, TestSet]  # by the name of their files
    joined: dict[str, list[str]]  # files of several sets, one after the other


class Job(NamedTuple):
    """A recipe with its directory, and directories of files that were fetched by hand."""

    recipe: Recipe
    root: Path
    local: list[Path]

    def sides(self, folder: Path, name: str) -> list[Path]:
        return [folder / f"{name}.{code}" for code in self.recipe.languages]


def command(argv: list[str]) -> None:
    parser = Parser("python -m scripts.wmt19", about=__doc__)
    add = parser.add_argument
    add("recipe", help=f"{' or '.join(RECIPES)}, or a TOML file like scripts/wmt19/*.toml")
    add("stage", nargs="?", choices=STAGES, help="one stage alone")
    add("--root", type=Path, metavar="DIR", help="of the text (default data/wmt19_...)")
    files = "files fetched by hand: archives, and test sets as newstest2014.de; may be repeated"
    add("--local", type=Path, action="append", default=[], metavar="DIR", help=files)
    add("--list", action="store_true", help="show what is downloaded, and leave")
    add("--dry-run", action="store_true", help="show what the stages would do, and leave")
    options = parser.parse_intermixed_args(argv)
    for folder in options.local:
        if not folder.is_dir():
            raise UserError(f"--local {folder}: no such directory", Exit.NO_INPUT)
    recipe = read_recipe(RECIPES.get(options.recipe, Path(options.recipe)))
    job = Job(recipe, options.root or Path("data") / recipe.name, options.local)
    stages = [options.stage] if options.stage else [*STAGES]
    if options.list or options.dry_run:
        lines = list_downloads(recipe) if options.list else forecast(job, stages, plan(job))
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    run_stages(job, stages)
    for line in recipe.commands if not options.stage else []:
        log.info("next: %s", f"{line} data.root={shlex.quote(str(job.root))}")


def run_stages(job: Job, stages: list[str]) -> None:
    """Do what is not finished; another process in the same directory waits."""
    outputs.check_writable([], [job.root])
    with atomic.hold_lock(job.root / ".lock", f"{job.root}: another process works there; waiting"):
        for folder in (job.root, job.root / "downloads", job.root / "test"):
            folder.mkdir(exist_ok=True)
            atomic.sweep(folder)  # what a killed process left takes disk
        needed = plan(job)
        for line in forecast(job, stages, needed):
            log.info("%s", line)
        for stage in stages:
            if stage in needed:
                STAGES[stage](job)


def read_recipe(path: Path) -> Recipe:
    """Read a TOML file; raises UserError (65) if it is no recipe."""
    data = manifest.read_bytes(path)
    try:
        return check.read(Recipe, tomllib.loads(data.decode()))
    except (ValueError, UserError) as error:  # no UTF-8, no TOML, or other keys
        raise UserError(f"{path}: no valid recipe: {error}", Exit.DATA) from None


def list_downloads(recipe: Recipe) -> Iterator[str]:
    yield from (recipe.title, "")
    for corpus in recipe.corpora:
        yield f"{corpus.id}: {corpus.about}"
        for archive in corpus.archives:
            for version in archive.versions:
                yield f"  {archive.file}  {version.size} bytes  sha256 {version.sha256}"
            yield from (f"    {url}" for url in archive.urls)
    needed = sum(corpus.archives[0].largest for corpus in recipe.corpora)
    yield from ("", f"in all: {len(recipe.corpora)} files, {format_size(needed)}")
    sets = ", ".join(f"{name} ({registered.sacrebleu})" for name, registered in recipe.sets.items())
    yield f"sets, by sacreBLEU's names: {sets}"


def plan(job: Job) -> dict[str, float]:
    """The stages that are not finished, and the bytes of disk that each needs."""
    needed: dict[str, float] = {}
    if not is_recorded(job, COUNTS, job.recipe.corpora):
        missing = [c.archives[0] for c in job.recipe.corpora if not find_archive(job, c)]
        if missing:
            parts = [job.root / "downloads" / f"{archive.file}.part" for archive in missing]
            there = sum(part.stat().st_size for part in parts if part.is_file())
            needed["download"] = max(0, sum(archive.largest for archive in missing) - there)
        sizes = [corpus.text_mb * 1e6 for corpus in job.recipe.corpora]
        needed["corpus"] = sum(sizes) + max(sizes)  # each is extracted, then added to the whole
    if not is_recorded(job, SETS, [job.recipe.sets, job.recipe.joined]) or any(
        read_text(path) != (job.root / "test" / path.name).read_bytes()
        for name in job.recipe.sets
        for path in find_local_set(job, name)
    ):
        needed["tests"] = 10e6
    return needed


def forecast(job: Job, stages: list[str], needed: dict[str, float]) -> list[str]:
    """A line for each stage and for the disk; raises UserError (74) if the disk is too small."""
    parents = (job.root.absolute(), *job.root.absolute().parents)
    free = shutil.disk_usage(next(parent for parent in parents if parent.exists())).free
    total = sum(needed.get(stage, 0) for stage in stages)
    if total * SAFETY > free:
        raise UserError(
            f"{job.root}: takes about {format_size(total)}, but only {format_size(free)} are "
            "free; make room, or choose another disk by --root",
            Exit.IO,
        )
    due = {name: f"to do; about {format_size(size)} of disk" for name, size in needed.items()}
    lines = [f"{stage}: {due.get(stage, 'nothing to do')}" for stage in stages]
    return [*lines, *([f"in all: {format_size(total)} in {job.root}"] if total else [])]


def format_size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def is_recorded(job: Job, record: str, inputs: Any) -> bool:
    """Whether a record was written for these inputs, and all files are as it says."""
    try:
        plain = manifest.read(job.root / record)
    except UserError:  # missing or damaged
        return False
    return plain.get("inputs") == check.to_plain(inputs) and all(
        (job.root / name).is_file() and sha256_of(job.root / name) == sha256
        for name, sha256 in plain["files"].items()
    )


def write_record(job: Job, record: str, inputs: Any, files: list[Path], **more: Any) -> None:
    """Write what the files were made from, and their SHA-256: the last step of a stage."""
    hashes = {path.relative_to(job.root).as_posix(): sha256_of(path) for path in files}
    plain = {**more, "inputs": check.to_plain(inputs), "files": hashes}
    atomic.replace(job.root / record, manifest.dump(plain))


def find_archive(job: Job, corpus: CorpusSource) -> Path | None:
    """An archive of a corpus that is there, or None; UserError (65) unless its hash is pinned."""
    folders = (job.root / "downloads", *job.local)
    paths = [folder / archive.file for archive in corpus.archives for folder in folders]
    path = next((path for path in paths if path.is_file()), None)
    if path and not any(archive.is_at(path) for archive in corpus.archives):
        sha256 = sha256_of(path)
        raise UserError(f"{path}: SHA-256 {sha256} is not the pinned one; remove it", Exit.DATA)
    return path


def download_archives(job: Job) -> None:
    """Get an archive of each corpus; an unavailable one does not stop the rest."""
    why: list[str] = []
    for corpus in job.recipe.corpora:
        if not find_archive(job, corpus):
            why += archives.fetch(corpus.archives, job.root / "downloads")
    if why:
        raise UserError(f"{job.root}: {UNAVAILABLE}", Exit.UNAVAILABLE, why)


def join_corpora(job: Job) -> None:
    """Write train.*, the named members of each archive one behind the other, and the counts."""
    paths = []
    for corpus in job.recipe.corpora:
        if not (path := find_archive(job, corpus)):
            advice = "the stage download fetches it; or give --local DIR"
            raise UserError(f"{job.root}: has no archive of {corpus.id}; {advice}", Exit.NO_INPUT)
        paths.append(path)
    finals = job.sides(job.root, "train")
    with atomic.temporary_directory(job.root / "text") as folder:
        together = zip(job.recipe.corpora, paths, strict=True)
        counts = [append_corpus(job, corpus, path, folder) for corpus, path in together]
        for final in finals:
            atomic.move(folder / final.name, final)
    lines = sum(row["lines"] for row in counts)
    write_record(job, COUNTS, job.recipe.corpora, finals, lines=lines, corpora=counts)
    log.info("train.*: %s pairs; Rosendahl et al. (2019): %s", f"{lines:,}", job.recipe.paper)


def append_corpus(job: Job, corpus: CorpusSource, path: Path, folder: Path) -> dict[str, Any]:
    """Add the sides of a corpus to train.* in a folder, and count its lines."""
    codes, count, dropped = job.recipe.languages, max(1, len(corpus.pairs)), 0
    files = [file for i in range(count) for file in job.sides(folder, str(i))]
    if corpus.columns:
        ordered = files if corpus.columns == codes else files[::-1]
        lines, dropped = archives.extract_columns(path, *ordered)
    else:
        names = [pair[code] for pair in corpus.pairs for code in codes]
        lines = archives.extract_members(path, dict(zip(files, names, strict=True)))
    size = sum(file.stat().st_size for file in files)
    for file in files:
        with file.open("rb") as text, (folder / f"train{file.suffix}").open("ab") as whole:
            shutil.copyfileobj(text, whole)
        file.unlink()
    counts = {"lines": lines, "stated": corpus.lines, "dropped": dropped, "bytes": size}
    log.info("  %s: %s", corpus.id, ", ".join(f"{key} {count}" for key, count in counts.items()))
    return {"id": corpus.id, "file": path.name, "sha256": sha256_of(path), **counts}


def find_local_set(job: Job, name: str) -> list[Path]:
    both = (job.sides(folder, name) for folder in job.local)
    return next((sides for sides in both if all(path.is_file() for path in sides)), [])


def fetch_set(registered: str, languages: list[str]) -> list[Path]:
    """Both sides of a test set as sacreBLEU downloads it, with an MD5; raises UserError (69)."""
    from sacrebleu.utils import SACREBLEU_DIR, get_reference_files, get_source_file

    socket.setdefaulttimeout(archives.TIMEOUT)  # sacreBLEU would wait for ever
    pair = "-".join(languages)
    try:
        source, target = get_source_file(registered, pair), get_reference_files(registered, pair)[0]
        return [Path(source), Path(target)]
    except (SystemExit, Exception) as error:
        # it exits where an MD5 is wrong, and never repairs what a full disk left
        why, kept = f"{type(error).__name__}: {error}", Path(SACREBLEU_DIR) / registered
        advice = f"unless another process is downloading it, remove {kept} and try again"
        raise UserError(f"sacreBLEU's {registered}: {why}; {advice}", Exit.UNAVAILABLE) from None


def read_text(path: Path) -> bytes:
    """The bytes of a file, with an LF at the end of its last line, too."""
    text = path.read_bytes()
    return text if text.endswith(b"\n") else text + b"\n"


def write_tests(job: Job) -> None:
    """Write all sets, and files of several; an unavailable one does not stop the rest."""
    texts, why = dict[str, list[bytes]](), list[str]()
    for name, expected in job.recipe.sets.items():
        try:
            paths = find_local_set(job, name)
            paths = paths or fetch_set(expected.sacrebleu, job.recipe.languages)
        except UserError as error:
            files = " and ".join(path.name for path in job.sides(Path(), name))
            why.append(f"{files}: {error}")
            continue
        sides = texts[f"test/{name}"] = [read_text(path) for path in paths]
        counts = [text.count(b"\n") for text in sides]
        if {*counts} != {expected.lines or counts[0]}:
            files = f"{' and '.join(map(str, paths))} have {counts} lines"
            raise UserError(f"{files}; {name} has {expected.lines}; remove them", Exit.DATA)
        log.info("  %s: %d pairs, from %s", name, counts[0], paths[0].parent)
    if why:
        raise UserError(f"{job.root}: {UNAVAILABLE}", Exit.UNAVAILABLE, why)
    for joined, names in job.recipe.joined.items():
        together = zip(*(texts[f"test/{name}"] for name in names), strict=True)
        texts[joined] = [b"".join(parts) for parts in together]
    written = [path for name in texts for path in job.sides(job.root, name)]
    for path, text in zip(written, chain(*texts.values()), strict=True):
        atomic.replace(path, text)
    write_record(job, SETS, [job.recipe.sets, job.recipe.joined], written)


STAGES: dict[str, Callable[[Job], None]] = {
    "download": download_archives,
    "corpus": join_corpora,
    "tests": write_tests,
}
main = partial(run, command)

if __name__ == "__main__":
    sys.exit(main())
