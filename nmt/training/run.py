"""One training run, from settings to a directory with a trained model."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from signal import Signals
from typing import NamedTuple

import torch

from nmt import modeldir
from nmt.checks import preflight
from nmt.config.settings import Settings
from nmt.corpus.prepare import Prepared, load
from nmt.corpus.report import log_counts
from nmt.errors import Exit, UserError, is_out_of_memory
from nmt.modeldir import Trained
from nmt.system.device import deterministic_algorithms, nondeterministic
from nmt.training import corpus, start, validation
from nmt.training.checkpoint import FULL
from nmt.training.directory import ELSEWHERE, Run, open_run
from nmt.training.distributed import SINGLE, World, explain_lost_rank
from nmt.training.reports import LOG, import_callback, log_file
from nmt.training.schedule import is_over
from nmt.training.trainer import Trainer

log = logging.getLogger(__name__)

# raises UserError for what trainer.target cannot hold; the model is None before text is prepared
RefuseTarget = Callable[[Settings, Trained | None], None]


class Outcome(NamedTuple):
    """How a run ended."""

    step: int
    best: float | None  # the best score on the development text; None: none has been measured
    metric: str = "perplexity"  # of that score, or bleu, or chrf: trainer.dev_metric
    already_finished: bool = False  # it was finished before, and nothing was done
    code: Exit = Exit.OK  # else why it was stopped: 75, or 128 and the number of a signal
    early: bool = False  # it was finished by trainer.early_stopping

    def __str__(self) -> str:
        if self.code != Exit.OK:
            in_time = self.code != Exit.OUT_OF_TIME
            by = Signals(self.code - 128).name if in_time else "trainer.max_hours"
            return f"stopped by {by} at step {self.step}, saved; resume with the same command"
        finished = f"{'already ' if self.already_finished else ''}finished at step {self.step}"
        early = ", by trainer.early_stopping" if self.early else ""
        best = "" if self.best is None else f", best dev {self.metric} {self.best:.4g}"
        return f"{finished}{early}{best}"


@torch.inference_mode(False)  # and gradients, which a notebook may have turned off
def train(
    settings: Settings,
    directory: Path,
    world: World = SINGLE,
    refuse_target: RefuseTarget | None = None,
) -> Outcome:
    """Train, or resume training; a run that is finished stays as it is.

    Settings are checked, the directory opened, the parent (trainer.init_from) read and the corpus
    prepared, in this order, so that errors come early. `refuse_target` is called before the corpus
    is prepared, and with the model, on the CPU, before the first update.

    Raises UserError, also if a signal (exit 128 + its number) or trainer.max_hours (75) stops the
    run.
    """
    preflight.check(settings)
    with open_run(directory, settings, world) as run:
        if run.finished:
            refuse_other_data(run, world.broadcast(lambda: corpus.fingerprint(settings, directory)))
            run.write_config()  # its budget may have become less than was trained
            return outcome_of(run)
        world.broadcast(lambda: check_start(settings, run.saved is not None, refuse_target))
        prepared = prepare(settings, directory, world)
        refuse_other_data(run, prepared.facts["fingerprint"])
        threads = torch.get_num_threads()
        try:
            outcome = fit(prepared, run, refuse_target)
        finally:  # as the caller had set it
            torch.set_num_threads(threads)
    if outcome.code != Exit.OK:
        raise UserError(str(outcome), outcome.code)
    return outcome


def check_start(settings: Settings, begun: bool, refuse_target: RefuseTarget | None = None) -> None:
    """Raise UserError for what would end training at its start, or at its first checkpoint.

    That is a missing callback, a BLEU that cannot be computed here and, unless the run has `begun`,
    an unfit parent, or a model that trainer.target cannot hold.
    """
    trainer = settings.trainer
    if trainer.callback is not None:
        import_callback(trainer.callback)
    if trainer.dev_metric == "bleu":
        validation.bleu(settings)
    if trainer.init_from is not None and not begun:
        start.check(settings, trainer.init_from)
    if refuse_target is not None and not begun:
        refuse_target(settings, None)


def prepare(settings: Settings, directory: Path, world: World) -> Prepared:
    """Prepare the corpus: rank 0 makes and verifies it, one of each other machine verifies it."""
    if world.size == 1:
        return corpus.prepare(settings, directory)
    path = world.broadcast(lambda: corpus.prepare(settings, directory).path)
    prepared = load(path, verify=world.rank > 0 and world.local_rank == 0)
    world.barrier()  # other machines may read more slowly
    return prepared


def refuse_other_data(run: Run, fingerprint: str) -> None:
    """Raise UserError (65) if the run was trained on another corpus, or from another parent.

    A parent was read before the first step: it may be gone by now, or have another best checkpoint.
    """
    if run.saved is None:
        return
    if run.saved.state["fingerprint"] != fingerprint:
        raise UserError(
            f"{run.saved.path}: trained on other data than that of "
            f"data={run.settings.data.name} now; restore the data, or {ELSEWHERE}",
            Exit.DATA,
        )
    if (path := run.settings.trainer.init_from) is None:
        return
    try:
        if modeldir.weights_sha256(path) == run.saved.state["parent_sha256"]:
            return
    except UserError:
        log.warning("trainer.init_from=%s: cannot be read any more; it is not needed", path)
        return
    name_at_start = modeldir.read_settings(run.saved.path).trainer.init_from
    if Path(path).name == name_at_start and (Path(path) / modeldir.CHECKPOINTS).is_dir():
        log.warning("trainer.init_from=%s: has other weights than at the start", path)
        return
    raise UserError(
        f"{run.saved.path}: started from other weights than those of "
        f"trainer.init_from={path} now; restore them, or {ELSEWHERE}",
        Exit.DATA,
    )


def fit(prepared: Prepared, run: Run, refuse_target: RefuseTarget | None = None) -> Outcome:
    """Train, or resume training, in a directory that is open and holds no finished run.

    Raises UserError: exit 70 if training diverged, 71 if memory is short, 74 if the disk fails; the
    last checkpoint stays intact.
    """
    deterministic = run.settings.trainer.deterministic
    records = nullcontext() if run.world.rank else log_file(run.path / LOG)
    with records, deterministic_algorithms(deterministic):
        log_counts(prepared.report)
        try:
            trainer = Trainer(prepared, run)
            with trainer.batches.workers:
                trainer.start()
                if refuse_target and run.settings.trainer.target and not run.has_checkpoint:
                    model = deepcopy(trainer.model).cpu().eval()
                    sides = prepared.source, prepared.target
                    trained = Trained(run.settings, model, *sides, prepared.facts)
                    refuse_target(run.settings, trained)
                if not run.world.rank:
                    run.checkpoints.rotate()  # fewer may be kept now, for a disk that is full
                run.write_config()
                code = Exit(trainer.fit())
        except (OSError, RuntimeError, MemoryError) as error:
            if (explained := explain(error, run)) is None:
                raise
            raise explained from error
    return outcome_of(run, trainer, code)


def outcome_of(run: Run, trainer: Trainer | None = None, code: Exit = Exit.OK) -> Outcome:
    """Return how a trainer ended or, without one, the outcome of a run that was finished before."""
    options, best, state = run.settings.trainer, run.checkpoints.best, trainer or run.saved
    assert state is not None
    score = None if best is None else abs(best[0][0])  # the cost of a BLEU is its negative
    early = code == Exit.OK and not is_over(state.step, state.cursor, options)
    return Outcome(state.step, score, options.dev_metric, trainer is None, code, early)


def explain(error: Exception, run: Run) -> UserError | None:
    """Turn an error of disk, memory, ranks or determinism into a UserError; None: another."""
    if isinstance(error, OSError):
        kept = "the last checkpoint is intact, resume with the same command"
        room = "make room; trainer.keep_checkpoints=2 takes least; " if error.errno in FULL else ""
        advice = kept if run.has_checkpoint else "start again with the same command"
        path = error.filename or run.path
        return UserError(f"{path}: {error.strerror}; {room}{advice}", Exit.IO)
    if isinstance(error, RuntimeError) and (name := nondeterministic(error)) is not None:
        return UserError(
            f"trainer.deterministic=true: {name}, which this model needs, does not give "
            "the same bits in every run on a GPU; leave it out, or train on the CPU"
        )
    if not is_out_of_memory(error):
        return explain_lost_rank(error) if run.world.size > 1 else None
    advice = "lower trainer.batch_tokens and raise trainer.accumulate, or choose a smaller model"
    if run.has_checkpoint:  # such a run may change only trainer.gradient_checkpointing
        advice += ", with another name="
    if not (run.settings.trainer.gradient_checkpointing or run.settings.trainer.compile):
        advice = f"set trainer.gradient_checkpointing=true; or {advice}"
    return UserError(f"out of memory; {advice}", Exit.NO_MEMORY)
