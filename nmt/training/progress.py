"""The progress of a run: metrics.jsonl, log lines, a bar on a terminal, TensorBoard."""

import json
import logging
import math
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from nmt.errors import UserError
from nmt.storage import atomic, manifest
from nmt.training.records import Record, free_name

METRICS, BOARD = "metrics.jsonl", "tb"  # in a run directory
NEEDED = {
    "train": {"perplexity", "lr", "tokens_per_second"},
    "dev": {"perplexity"},
    "skipped": set[str](),
}  # keys that a line of metrics.jsonl of each kind has beside its step
GIGA = 1e9  # bytes in a GB
HELD = 2**20  # bytes of metrics.jsonl that wait for room on a full disk

log = logging.getLogger(__name__)


class Meter:
    """Sums over the updates since the last report, and since the last checkpoint."""

    def __init__(self) -> None:
        self.checkpoint_nll, self.checkpoint_tokens = 0.0, 0
        self.reset()

    def reset(self) -> None:
        """Start anew."""
        self.loss = self.nll = self.seconds = 0.0
        self.tokens = 0
        self.norm = 0.0

    def add(self, loss: float, nll: float, tokens: int, norm: float, seconds: float) -> None:
        """Add an update's sums over tokens, its gradient norm before clipping, its duration."""
        self.loss += loss
        self.nll += nll
        self.tokens += tokens
        self.checkpoint_nll += nll
        self.checkpoint_tokens += tokens
        self.seconds += seconds
        self.norm = norm

    def state(self) -> dict[str, float]:
        """Return what `restore` needs: a checkpoint may come between two reports."""
        return dict(vars(self))

    def restore(self, state: dict[str, float]) -> None:
        """Continue where `state` was taken."""
        vars(self).update(state)

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
    """Writes one line of metrics.jsonl per report, and shows it where somebody looks.

    On resuming at `step`, lines of later steps are cut off, so that none appears twice. With
    several ranks only rank 0 is to write; the others are `silent`.
    """

    def __init__(
        self, run: Path, step: int, last: int, tensorboard: bool, silent: bool = False
    ) -> None:
        self.step, self.last, self.silent = step, last, silent
        self.tensorboard = tensorboard and not silent
        self.record, self.board_record = Record(run / METRICS), Record(run / BOARD, directory=True)
        self.metrics: BinaryIO | None = None
        self.board: Any = None
        self.fields: dict[str, str] = {}

    def __enter__(self) -> "MetricsLog":
        if not self.silent:
            with self.record.written():
                if not self.record.make_way():
                    truncate(self.record.path, self.step)
                self.metrics = self.record.path.open("ab", buffering=HELD)
        if self.tensorboard:
            with self.board_record.written():
                self.board_record.make_way()
                self.board = _board(self.board_record.path, self.step)
        with ExitStack() as stack:
            bar = tqdm(
                total=self.last, initial=self.step, unit="update", leave=False,
                disable=self.silent or None,  # None: no bar where stderr is no terminal
            )  # fmt: skip
            self.bar = stack.enter_context(bar)
            if not self.bar.disable:
                stack.enter_context(logging_redirect_tqdm())
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._open.close()
        for record, file in ((self.record, self.metrics), (self.board_record, self.board)):
            if file is not None:
                with record.written():
                    file.close()

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
                *(line["step"], self.last, line["epoch"], line["loss"]),
                *(line["tokens_per_second"], line["memory_bytes"] / GIGA, line["lr"]),
            )

    def dev(self, line: dict[str, Any]) -> None:
        """Report on a checkpoint; the line is on the disk before the checkpoint is."""
        self._write({"kind": "dev", **line})
        if self.metrics is not None:
            with self.record.written():
                os.fsync(self.metrics.fileno())
        self._show(dev_ppl=f"{line['perplexity']:.4g}")
        log.info(
            "step %d/%d, epoch %d: dev perplexity %.4g",
            *(line["step"], self.last, line["epoch"], line["perplexity"]),
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
            with self.record.written():
                self.metrics.write(_bytes(line))
                self.metrics.flush()
        if self.board is not None:
            with self.board_record.written():
                for key, value in line.items():
                    if key not in ("kind", "step", "lines") and isinstance(value, (int, float)):
                        self.board.add_scalar(f"{line['kind']}/{key}", value, line["step"])


class Metrics(NamedTuple):
    """The lines of metrics.jsonl that can be read."""

    lines: list[dict[str, Any]]
    remark: str  # what cannot be read; "" where nothing is wrong


def read_metrics(path: Path) -> Metrics:
    """Read metrics.jsonl as far as it can be; raises nothing.

    A last line without its end is left out without a remark: it is being written, or a kill has
    cut it.
    """
    try:
        if not path.is_file():
            return Metrics([], "not a file" if os.path.lexists(path) else "missing")
        whole = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        return Metrics([], str(error.strerror))
    lines = [line for text in whole if (line := _line(text, path)) is not None]
    if len(lines) < len(whole):
        return Metrics(lines, f"{len(whole) - len(lines)} of {len(whole)} lines cannot be read")
    return Metrics(lines, "" if lines else "holds no line")


def _line(text: bytes, where: Path) -> dict[str, Any] | None:
    """A line of metrics.jsonl, if it has what a line of its kind needs."""
    try:
        line = manifest.parse(text, where)
    except UserError:
        return None
    if not isinstance(line, dict) or not isinstance(kind := line.get("kind"), str):
        return None
    numbers = {key: value for key, value in line.items() if key not in ("kind", "lines")}
    known = kind in NEEDED and type(line.get("step")) is int and NEEDED[kind] <= numbers.keys()
    finite = all(type(n) in (int, float) and abs(n) <= sys.float_info.max for n in numbers.values())
    return line if known and finite and line.get("perplexity", 1) > 0 else None


def truncate(path: Path, step: int) -> None:
    """Cut off lines of later steps, and a last line that a kill left unfinished.

    Lines that cannot be read are left out with a warning, and the file that holds them is kept as
    corrupt.metrics.jsonl.
    """
    lines, remark = read_metrics(path)
    before = path.read_bytes() if path.is_file() else b""
    if remark and step:
        kept = "begun anew"
        if before:
            aside = free_name(path)
            atomic.replace(aside, before)
            kept = f"left out, and kept in {aside.name}"
        log.warning("%s: %s; %s", path, remark, kept)
    data = b"".join(_bytes(line) for line in lines if line["step"] <= step)
    if data != before:
        atomic.replace(path, data)


def _bytes(line: dict[str, Any]) -> bytes:
    return json.dumps(line, allow_nan=False).encode() + b"\n"


def _board(path: Path, step: int) -> Any:
    """Return a TensorBoard writer, or None where it is not installed; raises OSError."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.info("TensorBoard is not installed (pip install tensorboard); metrics.jsonl has it all")
        return None
    return SummaryWriter(str(path), purge_step=step + 1)
