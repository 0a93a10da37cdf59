"""nmt-recipe: an experiment of the paper from its downloads to its scores, stage by stage."""

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nmt import atomic
from nmt.cli.command import run
from nmt.cli.parser import TRAINING, Parser, once, within
from nmt.errors import Exit, UserError
from nmt.recipes import estimate
from nmt.recipes import lock as locks
from nmt.recipes.work import RecipeJob

if TYPE_CHECKING:
    from nmt.experiments.recipe import RecipeRequest

log = logging.getLogger(__name__)

USAGE = """nmt-recipe RECIPE [STAGE ...] [OPTION ...] [KEY=VALUE ...]"""
ABOUT = """
Makes an experiment of Rosendahl et al. (2019) from nothing: RECIPE is wmt19_deen or wmt19_zhen.

  nmt-recipe wmt19_deen                           all stages, hours to days
  nmt-recipe wmt19_deen download extract corpus tests --root /disk/wmt19
  nmt-recipe wmt19_deen --list                    what it downloads, to fetch by hand
  nmt-recipe wmt19_deen download --local FOLDER   files fetched by hand
  nmt-recipe wmt19_deen train score --encodings relative model=small

STAGE, in this order; all, if none is named:
  download  each archive, resumed where it stopped, checked by SHA-256
  extract   the parallel members alone
  corpus    one text train.* and its counts, corpus.json
  tests     dev.*, the test sets, newstest_all and concat_seq
  prepare   nmt-prepare, and what the limit on length costs
  train     nmt-train, a run for each of --encodings
  score     the paper's tables of these runs

A stage that was done with the same inputs is skipped; the same command again goes on where it was
stopped. KEY=VALUE are overrides of nmt-train. Before anything is downloaded, it says what all
stages take, and where. Its runs are those of nmt-train experiment=table2 scale=wmt19."""
MAX_DAYS = 14
STAGES = ("download", "extract", "corpus", "tests", "prepare", "train", "score")
OWN = {  # overrides that the recipe makes itself, and where they are said instead
    **dict.fromkeys(("runs", "name"), "--runs"),
    **dict.fromkeys(("encoding", "run"), "--encodings"),
    **dict.fromkeys(("experiment", "scale"), "nmt-train"),
    "data.root": "--root",
}


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Do the stages, or say what they would do."""
    request, show = understood(argv)
    if show == "list":
        sys.stdout.write(listed(request.job))
        return
    from nmt.experiments import recipe

    tables = recipe.plan(request)
    forecasts = recipe.foreseen(request, tables)
    totals = recipe.totals(request, forecasts)
    if show == "plan":
        sys.stdout.writelines(f"{line}\n" for line in [*forecasts, *totals])
        return
    for line in totals:
        log.info("%s", line)
    recipe.check(request, forecasts)
    with held(request.job.root):
        for stage in request.stages:
            for text in recipe.STAGES[stage](request, tables):
                sys.stdout.write(text)
                sys.stdout.flush()


def _options(argv: list[str]) -> argparse.Namespace:
    """Read the options; raises UserError, or SystemExit as argparse does."""
    parser = Parser(prog="nmt-recipe", groups=TRAINING, usage=USAGE, description=ABOUT)
    add = parser.add_argument
    add("recipe", choices=locks.names(), metavar="RECIPE", help=" or ".join(locks.names()))
    add("arguments", nargs="*", metavar="ARGUMENT", help="stages, and overrides of nmt-train")
    add("--root", type=Path, metavar="DIR", help="of the corpus (default data/RECIPE)")
    add(
        "--runs",
        type=Path,
        metavar="DIR",
        help="of the models and tables, as nmt-train's runs= (default runs)",
    )
    add(
        "--local",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="files fetched by hand: archives, and test sets as newstest2014.de; may be repeated",
    )
    add("--mirror", metavar="URL", help="try URL/FILE before the addresses of the lock file")
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=CHOICE",
        help="what the paper leaves open, e.g. rapid=2016; see --list",
    )
    add("--encodings", metavar="A,B", help="what to train and score (default: see --list)")
    add(
        "--max-days",
        type=within(1),
        default=MAX_DAYS,
        metavar="N",
        help=f"refuse training that is estimated to take longer ({MAX_DAYS})",
    )
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    add("--verify", action="store_true", help="hash all files of former stages again")
    add("--lock", type=Path, metavar="FILE", help="another lock file of the same recipe")
    add("--list", action="store_true", help="show what is downloaded, and leave")
    add("--dry-run", action="store_true", help="show what the stages would do, and leave")
    return parser.parse_intermixed_args(argv)


def understood(argv: list[str]) -> tuple["RecipeRequest", str | None]:
    """What is to be done, and what is to be shown instead: list, plan or None.

    Raises UserError, or SystemExit as argparse does.
    """
    given = _options(argv)
    path = given.lock or Path(locks.__file__).parent / f"{given.recipe}.toml"
    lock = locks.read(path)
    if lock.name != given.recipe:
        raise UserError(f"{path}: is a lock file of {lock.name}, not of {given.recipe}")
    if missing := next((folder for folder in given.local if not folder.is_dir()), None):
        raise UserError(f"--local {missing}: no such directory", Exit.NO_INPUT)
    named = [argument for argument in given.arguments if "=" not in argument]
    overrides = [argument for argument in given.arguments if "=" in argument]
    if unknown := [stage for stage in named if stage not in STAGES]:
        raise UserError(f"{unknown[0]}: no such stage; there are {', '.join(STAGES)}")
    once(overrides)
    for override in overrides:
        if option := OWN.get(override.partition("=")[0].lstrip("+")):
            raise UserError(f"{override}: say it with {option}")
    from nmt.experiments.recipe import RecipeRequest
    from nmt.overrides.options import beside

    job = RecipeJob(
        lock=lock,
        picked=locks.chosen(lock, given.option),
        root=given.root or Path("data") / lock.name,
        local=given.local,
        mirror=given.mirror,
        verify=given.verify,
    )
    request = RecipeRequest(
        job,
        [stage for stage in STAGES if stage in named or not named],
        given.runs or Path("runs"),
        given.encodings,
        [*beside(given.config_dir), *overrides],
        given.max_days,
        shlex.join(["nmt-recipe", *argv]),
    )
    return request, "list" if given.list else "plan" if given.dry_run else None


def listed(job: RecipeJob) -> str:
    """What a recipe downloads: files, sizes, hashes, addresses, options."""
    lock = job.lock
    lines = [lock.title, ""]
    for corpus in lock.corpora:
        only = ", ".join(f"--option {name}={value}" for name, value in corpus.only.items())
        lines.append(f"{corpus.id}: {corpus.about}{f' ({only})' if only else ''}")
        for archive in corpus.archives:
            for version in archive.versions:
                lines.append(f"  {archive.file}  {version.size} bytes  sha256 {version.sha256}")
            lines += [f"    {url}" for url in archive.urls]
    needed = sum(max(v.size for v in c.archives[0].versions) for c in job.corpora)
    lines += ["", f"with {_picked(job)}: {len(job.corpora)} files, {estimate.size(needed)}"]
    lines += [
        f"--option {name}={'|'.join(o.choices)}: {o.about} (default {o.default})"
        for name, o in lock.options.items()
    ]
    sets = ", ".join(f"{each.name} ({each.sacrebleu})" for each in lock.sets.values())
    lines += [f"sets, by sacreBLEU's names: {sets}", f"encodings: {', '.join(lock.encodings)}"]
    return "\n".join(lines) + "\n"


def _picked(job: RecipeJob) -> str:
    return ", ".join(f"{name}={value}" for name, value in job.picked.items()) or "no options"


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold the directory of a recipe; UserError (73) if it cannot be made or another one does."""
    from filelock import FileLock, Timeout

    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / ".lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{root}: in use by another nmt-recipe; wait, or stop it", Exit.CANT_CREATE
        ) from None
    except OSError as error:
        raise UserError(
            f"{root}: {error.strerror}; choose another --root", Exit.CANT_CREATE
        ) from None
    try:
        for folder in (root, *(root / name for name in ("state", "text", "test"))):
            if folder.is_dir():
                atomic.sweep(folder)  # what a killed one left
        yield
    finally:
        lock.release()


if __name__ == "__main__":
    sys.exit(main())
