"""One training run, from settings to a directory with a trained model."""

import logging
from pathlib import Path

import torch

from nmt import modeldir, preflight
from nmt.config.settings import Settings
from nmt.corpus.prepare import Prepared, load
from nmt.errors import Exit, UserError
from nmt.training import corpus, dev_score, surgery
from nmt.training.distributed import SINGLE, World
from nmt.training.reports import function_of
from nmt.training.run import Outcome, open_run
from nmt.training.trainer import fit

log = logging.getLogger(__name__)


@torch.inference_mode(False)  # and gradients, which a notebook may have turned off
def train(settings: Settings, directory: Path, world: World = SINGLE) -> Outcome:
    """Train, or resume training; a run that is finished stays as it is.

    Settings are checked, the directory opened, the parent (trainer.init_from) read and the corpus
    prepared, in this order, so that errors come early. Raises UserError, also where a signal (exit
    128 + its number) or trainer.max_hours (75) stopped the run.
    """
    preflight.check(settings)
    with open_run(directory, settings, world) as run:
        if run.finished:
            run.refuse_other_data(world.broadcast(lambda: _fingerprint(settings, directory)))
            if settings.decode != modeldir.read_settings(directory).decode:
                log.warning(
                    "decode: the checkpoints keep the settings of the search that they were "
                    "trained with; give others to nmt-translate and nmt-evaluate"
                )
            return run.end(run.step)
        world.broadcast(lambda: check_start(settings, run.saved is not None))
        prepared = _prepared(settings, directory, world)
        run.refuse_other_data(prepared.facts["fingerprint"])
        threads = torch.get_num_threads()
        try:
            outcome = fit(prepared, run)
        finally:  # a caller's own
            torch.set_num_threads(threads)
    if outcome.code != Exit.OK:
        raise UserError(str(outcome), outcome.code)
    return outcome


def check_start(settings: Settings, begun: bool) -> None:
    """Raise UserError for what would end training at once, or at its first checkpoint.

    That is a callback that is not there, a BLEU that cannot be computed here and, unless the run
    has `begun`, a parent that will not do.
    """
    trainer = settings.trainer
    if trainer.callback is not None:
        function_of(trainer.callback)
    if trainer.dev_metric == "bleu":
        dev_score.bleu(settings)
    if trainer.init_from is not None and not begun:
        surgery.check(settings, trainer.init_from)


def _fingerprint(settings: Settings, directory: Path) -> str:
    """The fingerprint of the corpus of a finished run."""
    try:
        return corpus.fingerprint(settings, directory)
    except UserError as error:
        raise UserError(
            f"{error}; {directory} is finished, but whether on this corpus cannot be seen without "
            "it (nmt-translate and nmt-evaluate need no corpus)",
            error.code,
        ) from None


def _prepared(settings: Settings, directory: Path, world: World) -> Prepared:
    """The prepared corpus: rank 0 makes and verifies it, one of each other machine verifies it."""
    if world.size == 1:
        return corpus.prepare(settings, directory)
    path = world.broadcast(lambda: corpus.prepare(settings, directory).path)
    prepared = load(path, verify=world.rank > 0 and world.local_rank == 0)
    world.barrier()  # other machines may read more slowly
    return prepared
