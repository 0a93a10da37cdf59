"""nmt-recipe: an experiment of the paper from its downloads to its scores, stage by stage."""

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli import testset
from nmt.cli.command import run
from nmt.cli.parser import TRAINING, Parser, once, within
from nmt.errors import Exit, UserError
from nmt.recipes import estimate
from nmt.recipes import lock as locks
from nmt.recipes.stamp import RecipeJob
from nmt.storage import atomic

if TYPE_CHECKING:
    from nmt.experiments.recipe import RecipeRequest

log = logging.getLogger(__name__)

USAGE = """nmt-recipe RECIPE [STAGE ...] [OPTION ...] [KEY=VALUE ...]
       nmt-recipe testset all|join ..."""
ABOUT = """
Runs an experiment of Rosendahl et al. (2019), from downloads to scores.

  nmt-recipe wmt19_deen                           all stages, hours to days
  nmt-recipe wmt19_deen download corpus tests --root /disk/wmt19
  nmt-recipe wmt19_deen --list                    what it downloads, to fetch by hand
  nmt-recipe wmt19_deen download --local FOLDER   files fetched by hand
  nmt-recipe wmt19_deen train score --encodings relative model=small
  nmt-recipe testset --help                       your own test sets: put together, lines joined

Stages, in this order (all, unless you name some):
  download  fetches the archives, resuming where it stopped, and checks their SHA-256
  corpus    joins the parallel text of all archives to train.*; counts in corpus.json
  tests     writes dev.*, the test sets, newstest_all and concat_seq
  prepare   runs nmt-prepare; reports how much text the length limit drops
  train     runs nmt-train, one run for each of --encodings
  score     translates and makes the paper's tables of these runs

Stages that are finished with the same inputs are skipped, so the same command continues after an
interruption. KEY=VALUE are settings of nmt-train. Before the first download, the disk and time that
all stages need are printed. The runs are those of nmt-train experiment=table2 scale=wmt19."""
MAX_DAYS = 14
STAGES = ("download", "corpus", "tests", "prepare", "train", "score")
OWN = {  # overrides that the recipe makes itself, and where they are said instead
    **dict.fromkeys(("runs", "name"), "--runs"),
    **dict.fromkeys(("encoding", "run"), "--encodings"),
    **dict.fromkeys(("experiment", "scale"), "nmt-train"),
    "data.root": "--root",
}


def command(argv: list[str]) -> None:
    """Do the stages, or say what they would do."""
    if argv[:1] == ["testset"]:
        testset.command(argv[1:])
        return
    request, show = understood(argv)
    if show == "list":
        sys.stdout.write(listed(request.job))
        return
    from nmt.experiments import recipe

    tables = recipe.plan(request)
    forecasts = recipe.forecasts(request, tables)
    totals = recipe.totals(request, forecasts)
    if show == "plan":
        sys.stdout.writelines(f"{line}\n" for line in [*forecasts, *totals])
        return
    for line in totals:
        log.info("%s", line)
    recipe.check(request, forecasts)
    with held(request.job.root):
        for text in recipe.make(request, tables):
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
    """The request, and what to show in the place of doing it: list, plan or None.

    Raises UserError, or SystemExit as argparse does.
    """
    options = _options(argv)
    path = options.lock or locks.path_of(options.recipe)
    lock = locks.read(path)
    if lock.name != options.recipe:
        raise UserError(f"{path}: is a lock file of {lock.name}, not of {options.recipe}")
    if options.mirror and not options.mirror.startswith(("http://", "https://")):
        raise UserError(f"--mirror {options.mirror}: expected https://... or http://...")
    if missing := next((folder for folder in options.local if not folder.is_dir()), None):
        raise UserError(f"--local {missing}: no such directory", Exit.NO_INPUT)
    named = [argument for argument in options.arguments if "=" not in argument]
    overrides = [argument for argument in options.arguments if "=" in argument]
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
        picked=locks.chosen(lock, options.option),
        root=options.root or Path("data") / lock.name,
        hashes={},
        local=options.local,
        mirror=options.mirror,
        verify=options.verify,
    )
    request = RecipeRequest(
        job,
        [stage for stage in STAGES if stage in named or not named],
        options.runs or Path("runs"),
        options.encodings,
        [*beside(options.config_dir), *overrides],
        options.max_days,
        shlex.join(["nmt-recipe", *argv]),
    )
    return request, "list" if options.list else "plan" if options.dry_run else None


def listed(job: RecipeJob) -> str:
    """A list of all downloads: files, sizes, hashes, addresses, options."""
    lock, first = job.lock, [corpus.archives[0] for corpus in job.corpora]
    lines = [lock.title, ""]
    for corpus in lock.corpora:
        only = f" (--option {corpus.only})" if corpus.only else ""
        lines.append(f"{corpus.id}: {corpus.about}{only}")
        for archive in corpus.archives:
            for version in archive.versions:
                lines.append(f"  {archive.file}  {version.size} bytes  sha256 {version.sha256}")
            lines += [f"    {url}" for url in archive.urls]
    needed = estimate.size(sum(max(v.size for v in archive.versions) for archive in first))
    lines += ["", f"with {', '.join(job.picked) or 'no options'}: {len(first)} files, {needed}"]
    for option in lock.options:
        choices = "|".join(option.choices)
        lines.append(f"--option {option.name}={choices}: {option.about} (default: the first)")
    sets = ", ".join(f"{name} ({known.sacrebleu})" for name, known in lock.sets.items())
    lines += [f"sets, by sacreBLEU's names: {sets}", f"encodings: {', '.join(lock.encodings)}"]
    return "\n".join(lines) + "\n"


@contextmanager
def held(root: Path) -> Iterator[None]:
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
