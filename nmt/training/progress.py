"""The progress of a run: metrics.jsonl, log lines, a bar on a terminal, TensorBoard."""

import logging
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from nmt.training.metrics import METRICS, encode, truncate
from nmt.training.records import Record
from nmt.training.stateful import Stateful

BOARD = "tb"  # in a run directory
GIGA = 1e9  # bytes in a GB
HELD = 2**20  # bytes of metrics.jsonl that wait for room on a full disk

log = logging.getLogger(__name__)


class Meter(Stateful):
    """Sums over the updates since the last report, and since the last checkpoint.

    A checkpoint may come between two reports, so both are saved in it.
    """

    kept = ("checkpoint_nll", "checkpoint_tokens", "loss", "nll", "seconds", "tokens", "norm")

    def __init__(self) -> None:
        self.checkpoint_nll, self.checkpoint_tokens = 0.0, 0
        self.reset()

    def reset(self) -> None:
        """Start anew after a report."""
        self.loss = self.nll = self.seconds = self.norm = 0.0
        self.tokens = 0

    def add(self, loss: float, nll: float, tokens: int, norm: float, seconds: float) -> None:
        """Add an update's sums over tokens, its gradient norm before clipping, its duration."""
        self.loss += loss
        self.nll += nll
        self.tokens += tokens
        self.checkpoint_nll += nll
        self.checkpoint_tokens += tokens
        self.seconds += seconds
        self.norm = norm

    def report(self) -> dict[str, float]:
        """Return means per token, the speed, and the last gradient norm."""
        return {
            "loss": self.loss / self.tokens,
            "perplexity": math.exp(min(self.nll / self.tokens, 700)),
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
            "grad_norm": self.norm,
        }

    def since_checkpoint(self) -> float:
        """Return the perplexity since the last call; not a number where there was no update."""
        nll, tokens = self.checkpoint_nll, self.checkpoint_tokens
        self.checkpoint_nll, self.checkpoint_tokens = 0.0, 0
        return math.exp(min(nll / tokens, 700)) if tokens else math.nan


class MetricsLog:
    """Writes one line of metrics.jsonl per report, and shows it where somebody looks."""

    def __init__(self, run: Path, bar: "tqdm[Any]") -> None:
        self.bar = bar
        self.fields: dict[str, str] = {}  # behind the bar
        self.metrics_record, self.board_record = Record(run / METRICS), Record(run / BOARD, True)
        self.metrics: BinaryIO | None = None
        self.board: Any = None  # of TensorBoard

    def tick(self) -> None:
        """Move the bar on by one update."""
        self.bar.update()

    def train(self, line: dict[str, Any]) -> None:
        """Report on the updates since the last report."""
        self._write({"kind": "train", **line})
        self._show(
            loss=f"{line['loss']:.3f}",
            lr=f"{line['lr']:.3g}",
            tok_s=f"{line['tokens_per_second']:.0f}",
            GB=f"{line['memory_bytes'] / GIGA:.1f}",
        )
        if self.bar.disable:
            log.info(
                "step %d/%d, epoch %d: loss %.4f, %.0f tokens/s, %.1f GB, lr %.3g",
                *(line["step"], self.bar.total, line["epoch"], line["loss"]),
                *(line["tokens_per_second"], line["memory_bytes"] / GIGA, line["lr"]),
            )

    def dev(self, line: dict[str, Any]) -> None:
        """Report on a checkpoint; the line is on the disk before the checkpoint is."""
        self._write({"kind": "dev", **line})
        if self.metrics is not None:
            with self.metrics_record.written():
                os.fsync(self.metrics.fileno())
        self._show(dev_ppl=f"{line['perplexity']:.4g}")
        log.info(
            "step %d/%d, epoch %d: dev perplexity %.4g",
            *(line["step"], self.bar.total, line["epoch"], line["perplexity"]),
        )

    def skipped(self, line: dict[str, Any]) -> None:
        """Report on an update that was not made, with the lines of the batch in the data."""
        self._write({"kind": "skipped", **line})
        shown = ", ".join(map(str, line["lines"][:10]))
        more = f" and {len(line['lines']) - 10} more" if len(line["lines"]) > 10 else ""
        log.warning(
            "step %d: loss or gradient is not finite; update skipped (lr %.3g, lines %s%s)",
            *(line["step"], line["lr"], shown, more),
        )

    def _show(self, **fields: str) -> None:
        self.fields.update(fields)
        self.bar.set_postfix(self.fields)

    def _write(self, line: dict[str, Any]) -> None:
        if self.metrics is not None:
            with self.metrics_record.written():
                self.metrics.write(encode(line))
                self.metrics.flush()
        if self.board is not None:
            with self.board_record.written():
                for key, value in line.items():
                    if key not in ("kind", "step", "lines") and isinstance(value, (int, float)):
                        self.board.add_scalar(f"{line['kind']}/{key}", value, line["step"])


@contextmanager
def metrics_log(
    run: Path, step: int, last: int, tensorboard: bool = False, silent: bool = False
) -> Iterator[MetricsLog]:
    """Report on updates from `step` to `last` in this context.

    Lines of later steps are cut off, so that none appears twice after resumption. On a `silent`
    rank nothing is written or shown.
    """
    bar = tqdm(
        total=last, initial=step, unit="update", leave=False,
        disable=silent or None,  # None: no bar where stderr is no terminal
    )  # fmt: skip
    with ExitStack() as stack:
        reports = MetricsLog(run, stack.enter_context(bar))
        if not bar.disable:
            stack.enter_context(logging_redirect_tqdm())
        if not silent:
            record = reports.metrics_record
            reports.metrics = stack.enter_context(record.opened(lambda: _metrics(record, step)))
        if tensorboard and not silent:
            record = reports.board_record
            reports.board = stack.enter_context(record.opened(lambda: _board(record, step)))
        yield reports


def _metrics(record: Record, step: int) -> BinaryIO:
    """Open metrics.jsonl to append lines of later steps; raises OSError."""
    if not record.make_way():
        truncate(record.path, step)
    return record.path.open("ab", buffering=HELD)


def _board(record: Record, step: int) -> Any:
    """Return a TensorBoard writer, or None where it is not installed; raises OSError."""
    record.make_way()
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.info("TensorBoard is not installed (pip install tensorboard); metrics.jsonl has it all")
        return None
    return SummaryWriter(str(record.path), purge_step=step + 1)
