"""nmt-recipe: the corpus and test sets of the paper, from downloads to texts, stage by stage."""

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import Parser
from nmt.errors import DISK, Exit, UserError
from nmt.recipes import disk, recipe
from nmt.recipes import lock as locks
from nmt.recipes.stamp import RecipeJob
from nmt.system import atomic

log = logging.getLogger(__name__)

USAGE = "nmt-recipe RECIPE [STAGE ...] [OPTION ...]"
ABOUT = """
Makes the training text and test sets of Rosendahl et al. (2019).

  nmt-recipe wmt19_deen                           all stages, hours
  nmt-recipe wmt19_deen --root /disk/wmt19
  nmt-recipe wmt19_deen --list                    what it downloads, to fetch by hand
  nmt-recipe wmt19_deen download --local FOLDER   files fetched by hand

Stages, in this order (all, unless you name some):
  download  fetches the archives, resuming where it stopped, and checks their SHA-256
  corpus    joins the parallel text of all archives to train.*; counts in corpus.json
  tests     writes dev.*, the test sets, and newstest_all

Stages that are finished with the same inputs are skipped, so the same command continues after an
interruption. Keep the archives: those that are gone are downloaded again. Before the first
download, the disk that all stages need is printed; at the end, the commands of nmt-train that make
the paper's tables from the text: to go on with training alone, use these."""


def command(argv: list[str]) -> None:
    """Do the stages, or say what they would do."""
    options = parse_arguments(argv)
    job: RecipeJob = options.job
    if options.list:
        sys.stdout.write(download_list(job))
        return
    if options.dry_run:
        lines, whole = recipe.forecast(job, options.stages)
        sys.stdout.writelines(f"{line}\n" for line in [*lines, *whole])
        return
    with locked(job.root):  # which removes what a killed one left; it takes disk
        for line in recipe.forecast(job, options.stages)[1]:
            log.info("%s", line)
        for name in options.stages:
            try:
                report = recipe.STAGES[name](job).run()
            except OSError as error:
                if error.errno not in DISK or error.filename:
                    raise
                advice = "mend that or make room, then the same command goes on"
                raise UserError(f"{job.root}: {error.strerror}; {advice}", Exit.IO) from None
            sys.stdout.write(report)
            sys.stdout.flush()
    if options.stages == [*recipe.STAGES]:
        for i, words in enumerate(recipe.next_commands(job)):
            log.info("%s  %s", "     " if i else "next:", shlex.join(words))


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options, with the `job` and its `stages`; raises UserError, or SystemExit."""
    parser = Parser(prog="nmt-recipe", usage=USAGE, description=ABOUT)
    add = parser.add_argument
    add("recipe", choices=locks.names(), metavar="RECIPE", help=" or ".join(locks.names()))
    add("named", nargs="*", default=[], metavar="STAGE", help=", ".join(recipe.STAGES))
    add("--root", type=Path, metavar="DIR", help="of the corpus (default data/RECIPE)")
    add(
        "--local",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="files fetched by hand: archives, and test sets as newstest2014.de; may be repeated",
    )
    add("--mirror", metavar="URL", help="try URL/FILE before the addresses of the lock file")
    add("--lock", type=Path, metavar="FILE", help="another lock file of the same recipe")
    add("--list", action="store_true", help="show what is downloaded, and leave")
    add("--dry-run", action="store_true", help="show what the stages would do, and leave")
    options = parser.parse_intermixed_args(argv)
    path = options.lock or locks.path_of(options.recipe)
    lock = locks.read(path)
    if lock.name != options.recipe:
        raise UserError(f"{path}: is a lock file of {lock.name}, not of {options.recipe}")
    if options.mirror and not options.mirror.startswith(("http://", "https://")):
        raise UserError(f"--mirror {options.mirror}: expected https://... or http://...")
    if missing := next((folder for folder in options.local if not folder.is_dir()), None):
        raise UserError(f"--local {missing}: no such directory", Exit.NO_INPUT)
    if unknown := [name for name in options.named if name not in recipe.STAGES]:
        raise UserError(f"{unknown[0]}: no such stage; there are {', '.join(recipe.STAGES)}")
    options.stages = [s for s in recipe.STAGES if s in options.named or not options.named]
    options.job = RecipeJob(
        lock=lock,
        root=options.root or Path("data") / lock.name,
        local=options.local,
        mirror=options.mirror,
    )
    return options


def download_list(job: RecipeJob) -> str:
    """A list of all downloads: files, sizes, hashes, addresses."""
    lock, first = job.lock, [corpus.archives[0] for corpus in job.lock.corpora]
    lines = [lock.title, ""]
    for corpus in lock.corpora:
        lines.append(f"{corpus.id}: {corpus.about}")
        for archive in corpus.archives:
            for version in archive.versions:
                lines.append(f"  {archive.file}  {version.size} bytes  sha256 {version.sha256}")
            lines += [f"    {url}" for url in archive.urls]
    needed = disk.size(sum(max(v.size for v in archive.versions) for archive in first))
    lines += ["", f"in all: {len(first)} files, {needed}"]
    sets = ", ".join(f"{name} ({known.sacrebleu})" for name, known in lock.sets.items())
    lines.append(f"sets, by sacreBLEU's names: {sets}")
    return "\n".join(lines) + "\n"


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the directory of a recipe; UserError (73) if it cannot be made or another one does."""
    from filelock import FileLock, Timeout

    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / ".lock", timeout=0).acquire()
    except Timeout:
        raise UserError(
            f"{root}: in use by another nmt-recipe; wait, or stop it", Exit.CANT_CREATE
        ) from None
    except OSError as error:
        raise UserError(
            f"{root}: {error.strerror}; choose another --root", Exit.CANT_CREATE
        ) from None
    with lock:
        for folder in (root, root / "state", root / "test"):
            if folder.is_dir():
                atomic.sweep(folder)  # what a killed one left
        yield


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
