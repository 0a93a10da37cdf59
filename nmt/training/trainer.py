"""The training loop."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from nmt import build, modeldir
from nmt.corpus.batches import in_order, training_batches
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError, is_out_of_memory
from nmt.system import manifest
from nmt.system.device import numbers_later, set_up
from nmt.system.manifest import VerifiedDirectory
from nmt.system.resources import keep_memory, peak_memory, release_memory
from nmt.training import loss, reports, validation
from nmt.training.average import move_average
from nmt.training.checkpoint import FULL, OPTIMIZER, RAW, STATE, dump_optimizer, restore_optimizer
from nmt.training.corpus import check_data, leave_out_long
from nmt.training.directory import Run
from nmt.training.feed import DeviceBatch, Feed, halve, to_device
from nmt.training.schedule import DataCursor, Stalls, is_finished, is_over, last_step, make_schedule
from nmt.training.signals import stop_signals
from nmt.training.start import graft

# attributes of a trainer that state.json has, and parts of it of which it has all attributes
SAVED_ATTRIBUTES = ("step", "checkpoints", "nonfinite", "seconds", "parent_sha256")
SAVED_PARTS = ("schedule", "meter", "stalls")

log = logging.getLogger(__name__)


class _Update(NamedTuple):
    """An update that the device may still be making."""

    step: int
    cursor: DataCursor
    rate: float
    tokens: int
    numbers: Callable[[], list[float]]  # sums of loss and likelihoods, norm; waits for the device


class Trainer:
    """One run: model, optimizer, schedule, and the step that they have reached."""

    step = 0  # updates that were made, or skipped
    cursor = DataCursor()  # of the next update
    last_cursor = DataCursor()  # of the last one
    is_due = False  # whether a checkpoint follows the last update
    checkpoints = 0  # that were due, so far
    nonfinite = 0  # updates in a row that were skipped
    seconds = 0.0  # of updates, over all resumptions
    pending: _Update | None = None  # the last update, until its numbers are there
    parent_sha256: str | None = None  # of the weights of trainer.init_from, at the start
    timed_from = 0.0  # when the time of the next update to be finished began

    def __init__(self, prepared: Prepared, run: Run) -> None:
        settings = run.settings
        prepared = prepared._replace(dev=leave_out_long(prepared.dev, settings.data))
        self.settings, self.prepared, self.run = settings, prepared, run
        self.options, self.optim, self.world = settings.trainer, settings.optim, run.world
        self.device = self.world.device(self.options.device)
        if self.device.type == "cpu":
            keep_memory()
        self.precision = self.world.number_format(self.options, self.device)
        set_up(self.device, tf32=self.precision == "tf32", threads=self.options.threads)
        self.autocast = partial(  # the context of a forward pass
            torch.autocast, self.device.type, torch.bfloat16, self.precision == "bfloat16"
        )
        self.environment = reports.describe_environment(
            self.device, self.precision, self.options, self.world.size
        )
        torch.manual_seed(settings.seed)
        source, target = prepared.source.vocabulary, prepared.target.vocabulary
        self.model = build.model(settings, source, target).to(self.device).train()
        for stack in (self.model.encoder, self.model.decoder):
            stack.recompute = self.options.gradient_checkpointing
        build.freeze(self.model, self.options.freeze)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(  # without weight decay it is Adam
            self.parameters,
            betas=(self.optim.beta1, self.optim.beta2),
            eps=self.optim.eps,
            weight_decay=self.optim.weight_decay,
            fused=True,
        )
        self.objective = self.world.data_parallel(
            loss.Objective(self.model, self.optim.label_smoothing, self.options.compile)
        )
        self.evaluated = self.model  # with trainer.ema another, the average of its weights
        self.schedule = make_schedule(self.optim)
        check_data(self.prepared, self.model)
        self.batches = training_batches(settings, prepared, self.world.size)
        self.feed = Feed(self.batches, self.options, self.world, self.device)
        self.updates = self.feed.updates(0)  # of the first epoch
        self.last = last_step(self.updates, self.options)  # about: epochs may differ in length
        self.next_batches: list[DeviceBatch] = []  # the batches of the next step
        self.meter = reports.Meter()
        self.stalls = Stalls()

    def start(self) -> None:
        """Resume exactly where the newest checkpoint was written, or start a new run."""
        saved, parent = self.run.saved, self.options.init_from
        if saved is None and parent is not None:
            path = Path(parent)
            if self.world.size > 1:  # one checkpoint for all, as the parent may still be trained
                path = self.world.broadcast(lambda: modeldir.locate(path))
            self.parent_sha256 = graft(self.model, self.settings, path).parent_sha256
        if self.options.ema:
            self.evaluated = deepcopy(self.model)
        if saved is None:
            return
        checkpoint = VerifiedDirectory(saved.path)
        raw = RAW if self.options.ema else modeldir.WEIGHTS
        for model, name in ((self.evaluated, modeldir.WEIGHTS), (self.model, raw)):
            tensors = modeldir.read_tensors(checkpoint, name)
            modeldir.set_weights(model, tensors, saved.path / name)
        restore_optimizer(checkpoint, self.model, self.optimizer, self.device)
        for name in SAVED_PARTS:
            vars(getattr(self, name)).update(saved.state[name])
        vars(self).update({name: saved.state[name] for name in SAVED_ATTRIBUTES})
        self.cursor = saved.cursor
        reports.warn_of_changes(saved.state["environment"], self.environment)
        log.info("resuming at step %d", self.step)

    def fit(self) -> int:
        """Train to the end, or until a signal or the time asks to stop; returns the exit code."""
        reports.announce(
            self.run.path, self.model, self.environment, self.last, self.updates, self.batches.pairs
        )
        self.batches.report()
        first, code = self.step, 0
        progress = reports.MetricsLog(
            self.run.path, first, self.last, self.options, self.world.rank > 0
        )
        with stop_signals() as stop, progress as self.progress:
            while not self.is_finished:
                in_time = self.step == first or self.run.seconds_left() > 0
                if code := self.update(stop.code or (0 if in_time else Exit.OUT_OF_TIME)):
                    self.finish_update()
                    self.save(None)
                    break
                if self.is_due or self.is_over:
                    self.checkpoint()
        return code

    @property
    def is_over(self) -> bool:
        return is_over(self.step, self.cursor, self.options)

    @property
    def is_finished(self) -> bool:
        """Whether all updates were made, or trainer.early_stopping ends them."""
        return is_finished(self.step, self.cursor, self.stalls.stalled, self.options)

    def update(self, stop: int = 0) -> int:
        """Make the next update from the gradient of its batches, unless that is not finite.

        A GPU decides by itself whether loss and gradient are finite, and the host reads the numbers
        of an update while the GPU computes the next one, so that neither waits for the other.

        `stop`: the exit code with which this rank is to stop, or 0. Returns the greatest `stop` of
        all ranks; unless it is 0, no rank makes an update, and all stop after the same step.
        """
        if self.pending is None:
            self.timed_from = time.monotonic()
        cursor = self.cursor
        batches = self.next_batches or self.feed.device_batches(cursor, self.step)
        stop = int(self.world.all_reduce(torch.tensor(stop), "MAX"))
        if stop:
            return stop
        tokens = int(self.world.all_reduce(torch.tensor(sum(b.tokens for b in batches))))
        self.step += 1
        self.last_cursor, self.cursor = cursor, self.feed.after(cursor)
        self.is_due = self.feed.is_due(cursor, self.step)
        self.checkpoints += self.is_due
        rate = self.schedule.rate(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        per_rank = tokens / self.world.size  # makes DDP's mean over ranks the sum
        sums = self.world.all_reduce(self.backward(batches, per_rank))
        norm = get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        numbers = torch.cat((sums, norm[None]))
        self.finish_update()  # the one before; this one overwrites its weights
        if self.optim.clip:
            clip_grads_with_norm_(self.parameters, self.optim.clip, norm)
        # torch's own way to make no update: then weights and moments stay, and the step count
        nonfinite = numbers.isfinite().all().logical_not().float()
        self.optimizer.found_inf = nonfinite  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.pending = _Update(self.step, cursor, rate, tokens, numbers_later(numbers))
        # while a GPU is still at work on this step, the host makes the next one's batches
        self.next_batches = [] if self.is_over else self.feed.device_batches(self.cursor, self.step)
        if self.device.type == "cpu":
            self.finish_update()
        return 0

    def backward(self, batches: list[DeviceBatch], tokens: float) -> Tensor:
        """Compute the gradient of an update: of the mean loss per token over all ranks' batches.

        Returns this rank's sums [2] of smoothed loss and negative log-likelihood. `tokens`: those
        of the update divided by the number of ranks. If memory is too small, a single process tries
        once more with halved batches, which give the same gradient.
        """
        try:
            return self.sum_gradients(batches, tokens)
        except (RuntimeError, MemoryError) as error:
            single = all(len(batch.source) == 1 for batch in batches)
            if self.world.size > 1 or single or not is_out_of_memory(error):
                raise  # with several ranks, all would wait for this one
        # from here on, no error holds the tensors of the first try
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.progress.report("split", self.line_fields(self.step, self.last_cursor))
        whole = self.feed.host_batches(self.last_cursor)
        smaller = [half for batch in whole for half in halve(batch)]
        return self.sum_gradients([to_device(half, self.device) for half in smaller], tokens)

    def sum_gradients(self, batches: list[DeviceBatch], tokens: float) -> Tensor:
        """Add to .grad the gradients of the batches' losses, each a sum divided by `tokens`.

        Returns the sums [2] over this rank's tokens of smoothed loss and negative log-likelihood.
        """
        total = torch.zeros(2, device=self.device)
        for batch in batches:
            self.world.seed(self.settings.seed, self.step, batch.position)
            with self.world.gradients(self.objective, batch is batches[-1]):
                with self.autocast():
                    share, sums = self.objective(batch, tokens)
                share.backward()
            total += sums
        return total

    def finish_update(self) -> None:
        """Wait for the numbers of the last update, average its weights, and report it; once.

        The model must still have the weights of that update. Raises UserError (exit 70) after
        nonfinite_patience updates in a row that were not finite.
        """
        if self.pending is None:
            return
        update, self.pending = self.pending, None
        total, nll, norm = update.numbers()
        now = time.monotonic()
        seconds, self.timed_from = now - self.timed_from, now
        if finite := all(map(math.isfinite, (total, nll, norm))):
            if self.options.ema:
                move_average(self.evaluated, self.model, update.step, self.options.ema)
            self.nonfinite = 0
            self.seconds += seconds
            self.meter.add(total, nll, update.tokens, norm, seconds)
        fields = {**self.line_fields(update.step, update.cursor), "lr": update.rate}
        if not finite:
            self.nonfinite += 1
            lines = [
                line for batch in self.feed.host_batches(update.cursor) for line in batch.lines
            ]
            self.progress.report("skipped", {**fields, "lines": lines})
            if self.nonfinite >= self.options.nonfinite_patience:
                reason = f"{self.nonfinite} updates in a row were not finite"
                raise self.diverged(update.step, reason)
        self.progress.advance(update.step)
        if update.step % self.options.log_every == 0 and self.meter.tokens:
            means = {**self.meter.report(), "memory_bytes": peak_memory(self.device)}
            self.progress.report("train", {**fields, **means})
            self.meter = reports.Meter()

    def checkpoint(self) -> None:
        """Measure dev perplexity and trainer.dev_metric, report them, and save a checkpoint.

        Schedule and early stopping observe only checkpoints that are due, not that of a run's end:
        so a run that is later continued equals one that had all steps at first.
        """
        self.finish_update()
        dev = in_order(self.prepared.dev, self.options.batch_tokens, self.options.batch_count)
        perplexity = validation.perplexity(
            self.evaluated, dev, self.device, self.autocast(), self.world
        )
        if not math.isfinite(perplexity):
            raise self.diverged(self.step, f"the dev perplexity is {perplexity}")
        measured, cost = {"perplexity": perplexity}, [perplexity]
        if (metric := self.options.dev_metric) != "perplexity":
            score = partial(validation.dev_score, self.evaluated, self.settings, self.prepared)
            measured[metric] = self.world.broadcast(score)  # rank 0 translates
            cost = [-measured[metric], perplexity]
        vocab, best = self.model.output.out_features, self.stalls.best
        if best and perplexity > max(best[-1], vocab) and not self.options.early_stopping:
            log.warning(
                f"step {self.step}: dev perplexity {perplexity:.4g} is worse than before, and than "
                f"guessing ({vocab:,}, the size of the vocabulary); try a lower optim.lr, or set "
                "trainer.early_stopping"
            )
        measured["lr"] = self.schedule.rate(self.step)
        self.progress.report("dev", {**self.line_fields(self.step, self.last_cursor), **measured})
        if self.is_due:
            self.schedule.observe(cost)
            self.stalls.observe(cost)
        try:
            self.save(cost)
        except OSError as error:
            decisive = self.is_finished or not self.run.has_checkpoint  # all might be lost
            if error.errno not in FULL or decisive:
                raise
            log.warning("%s: %s; trying again at the next one", error.filename, error.strerror)
        self.world.barrier()  # for rank 0, longer than an update would wait
        if self.device.type == "cpu":
            release_memory()

    def diverged(self, step: int, reason: str) -> UserError:
        kept = "there is no checkpoint yet; try a lower optim.lr"
        if self.run.has_checkpoint:
            kept = "the last checkpoint is intact; try a lower optim.lr with another name="
        return UserError(f"step {step}: {reason}; training diverged; {kept}", Exit.DIVERGED)

    def save(self, cost: list[float] | None) -> None:
        """Write a checkpoint of this step; only rank 0 does. See `Saved.cost`. Raises OSError."""
        if not self.world.rank:
            self.run.checkpoints.save(self.step, cost, self.files(cost))

    def files(self, cost: list[float] | None) -> Iterator[tuple[str, bytes]]:
        """Yield the files of a checkpoint: a model directory, and what resumption needs."""
        perplexity = cost[-1] if cost else None
        lengths = {f"longest_{side}": pieces for side, pieces in self.batches.longest.items()}
        facts = {**self.prepared.facts, **lengths, "step": self.step, "dev_perplexity": perplexity}
        source, target = self.prepared.source, self.prepared.target
        yield from modeldir.parts(self.settings, self.evaluated, source, target, facts)
        if self.options.ema:
            yield RAW, manifest.dump_tensors(modeldir.weights(self.model))
        yield OPTIMIZER, dump_optimizer(self.model, self.optimizer, self.device)
        state = {
            "cost": cost,
            "cursor": self.cursor,
            "updates": self.updates,
            **{name: getattr(self, name) for name in SAVED_ATTRIBUTES},
            **{name: vars(getattr(self, name)) for name in SAVED_PARTS},
            "fingerprint": self.prepared.facts["fingerprint"],
            "environment": self.environment,
        }
        yield STATE, manifest.dump(state)

    def line_fields(self, step: int, cursor: DataCursor) -> dict[str, Any]:
        """The fields that all lines of metrics.jsonl have."""
        return {"step": step, "epoch": cursor.epoch + 1, "seconds": round(self.seconds, 3)}
