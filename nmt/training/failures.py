"""What torch and the system raise while training, as errors that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from nmt.errors import Exit, UserError, is_out_of_memory
from nmt.machine.device import nondeterministic
from nmt.training.run import Run


@contextmanager
def explained(run: Run) -> Iterator[None]:
    """Raise UserError for want of memory (71), a failing disk (74), and bits that differ (2)."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and (name := nondeterministic(error)) is not None:
            raise UserError(
                f"trainer.deterministic=true: {name}, which this model needs, does not give "
                "the same bits in every run on a GPU; leave it out, or train on the CPU"
            ) from error
        if not is_out_of_memory(error):
            raise
        raise UserError(f"out of memory; {_less_memory(run)}", Exit.NO_MEMORY) from error
    except OSError as error:
        kept = "the last checkpoint is intact, resume with the same command"
        raise UserError(
            f"{error.filename or run.path}: {error.strerror}; "
            f"{kept if run.has_checkpoint else 'start again with the same command'}",
            Exit.IO,
        ) from error


def _less_memory(run: Run) -> str:
    """The keys that save memory; a run with a checkpoint may change only the first of them."""
    begun = run.has_checkpoint
    advice = "lower trainer.batch_tokens and raise trainer.accumulate"
    if begun:
        advice += ", with another name="
    if run.settings.trainer.gradient_checkpointing:
        return advice
    return f"{'resume' if begun else 'start'} with trainer.gradient_checkpointing=true; or {advice}"
