"""The stages of a recipe in their order, the disk that each needs, and what comes after them."""

from collections.abc import Callable, Sequence

from nmt.recipes import disk, stages, wmtsets
from nmt.recipes.stamp import RecipeJob, Stage

STAGES: dict[str, Callable[[RecipeJob], Stage]] = {
    "download": stages.download,
    "corpus": stages.corpus,
    "tests": wmtsets.tests,
}


def forecast(job: RecipeJob, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """A line for each stage, and one on all that is to be done (none if nothing is).

    Raises UserError (74) if the disk cannot hold it.
    """
    lines, needed = [], 0.0
    for name in names:
        stage = STAGES[name](job)
        if not stage.needs_run():
            lines.append(f"{name}: nothing to do")
            continue
        needed += stage.disk
        lines.append(f"{name}: to do; about {disk.size(stage.disk)} of disk")
    disk.check(job.root, needed)
    return lines, [f"in all: {disk.size(needed)} in {job.root}"] if needed else []


def next_commands(job: RecipeJob) -> list[list[str]]:
    """The commands that train the paper's runs on the text, and make its tables of them."""
    lock = job.lock
    common = [f"scale={lock.scale}", f"run={','.join(lock.runs)}", f"data.root={job.root}"]
    return [["nmt-train", f"experiment={table}", *common, "seed=1"] for table in lock.tables]
