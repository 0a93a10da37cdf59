"""Stages as lists of work that can be done, skipped or resumed one by one."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from nmt.errors import Exit, UserError
from nmt.recipes.download import Bar, Patience, UnavailableError
from nmt.recipes.ledger import Ledger
from nmt.recipes.lock import Lock, PinnedCorpus, taking_part

log = logging.getLogger(__name__)


class RecipeJob(NamedTuple):
    """A recipe, and where and how it is to be made."""

    lock: Lock
    picked: Mapping[str, str]  # the choice of each option
    root: Path  # all files of the recipe
    local: Sequence[Path] = ()  # folders of files fetched by hand
    mirror: str | None = None  # address tried first
    verify: bool = False  # hash all files again
    patience: Patience = Patience()

    @property
    def corpora(self) -> list[PinnedCorpus]:
        """Those that take part with these choices."""
        return taking_part(self.lock, self.picked)

    def ledger(self, stage: str) -> Ledger:
        """What a stage has done."""
        return Ledger(self.root, stage, self.verify)


class StageItem(NamedTuple):
    """A part of a stage."""

    item: str
    inputs: Mapping[str, Any]  # with the same ones it need not be done again
    make: Callable[[], tuple[Sequence[Path], Mapping[str, Any]]]  # its outputs, and facts


def pending(job: RecipeJob, stage: str, works: Sequence[StageItem]) -> list[StageItem]:
    """The work of a stage that is to be done: never done, of other inputs, or damaged since."""
    ledger = job.ledger(stage)
    return [work for work in works if ledger.done(work.item, work.inputs) is None]


def unfinished_items(job: RecipeJob, stage: str, works: Sequence[StageItem]) -> list[str]:
    """The names of what `pending` would give, by a look at sizes alone: hashes nothing."""
    ledger = job.ledger(stage)
    return [work.item for work in works if not ledger.seems_done(work.item, work.inputs)]


def perform(job: RecipeJob, stage: str, works: Sequence[StageItem]) -> None:
    """Do work and write down each part when it is done.

    A part that cannot be downloaded does not stop the others; UserError (69) then says what is
    missing and where to put it, with a line for each address that failed.
    """
    missing, why = 0, []
    for work in works:
        log.info("%s: %s", stage, work.item)
        try:
            outputs, facts = work.make()
        except UnavailableError as error:
            missing += 1
            why += error.why
            continue
        job.ledger(stage).note(work.item, work.inputs, outputs, facts)
    if missing:
        folder = f", or put them into {job.root / 'downloads'}" if stage == "download" else ""
        raise UserError(
            f"{stage}: {missing} of {len(works)} cannot be downloaded; fetch the files elsewhere "
            f"and add --local FOLDER{folder}; the same command then goes on",
            Exit.UNAVAILABLE,
            why,
        )


def progress(name: str, total: int, done: int) -> Bar:
    """A bar on stderr, where that is a terminal."""
    bar: Bar = tqdm(
        total=total, initial=done, desc=name, unit="B", unit_scale=True, disable=None, leave=False
    )
    return bar
