"""What a run reports: metrics.jsonl, train.log, log lines, a bar, TensorBoard; its environment.

How far a run has come follows from its checkpoints and config.json. A report that cannot be written
is a warning, and training continues.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

import nmt
from nmt.config.settings import Training
from nmt.errors import PLUGIN_ERRORS, UserError, where_raised
from nmt.model.transformer import Transformer
from nmt.system import atomic
from nmt.system.device import device_name
from nmt.system.machine import this_machine

METRICS, LOG, BOARD = "metrics.jsonl", "train.log", "tb"  # in a run directory
GIGA = 1e9  # bytes in a GB
ESTIMATE_AFTER = 5  # updates, by which the duration of a run is estimated
WARNED: set[Path] = set()  # files about which this process has warned

Line = dict[str, Any]

log = logging.getLogger(__name__)


@contextmanager
def warn_of_errors(path: Path) -> Iterator[None]:
    """Let an OSError about a file that training does not need be a warning, once per file."""
    try:
        yield
    except OSError as error:
        if path not in WARNED:
            WARNED.add(path)
            log.warning("%s: %s; training continues", path, error.strerror or str(error))


def write_hint(path: Path, data: bytes) -> None:
    """Write a small file that training does not need, unless its content is the same."""
    with warn_of_errors(path):
        if not (path.exists() and path.read_bytes() == data):
            atomic.replace(path, data)


def read_metrics(path: Path) -> list[Line]:
    """Return the lines of metrics.jsonl that can be read."""
    try:
        texts = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    return [line for text in texts if (line := _parse(text))]


def _parse(text: bytes) -> Line:
    """A line of metrics.jsonl; empty if it cannot be read."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    whole = isinstance(line, dict) and [type(line.get(k)) for k in ("step", "kind")] == [int, str]
    return line if whole else {}


def cut_back(path: Path, step: int) -> None:
    """Remove later steps than `step` from metrics.jsonl, and a last line that a kill has torn.

    So no line appears twice in a run that is resumed; lines that cannot be read stay.
    """
    with warn_of_errors(path):
        if path.is_file():
            texts = path.read_bytes().split(b"\n")[:-1]
            write_hint(path, b"".join(t + b"\n" for t in texts if _parse(t).get("step", 0) <= step))


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Warn once where the file cannot be written; the other handlers get the warning."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
            return
        with warn_of_errors(Path(self.baseFilename)):
            raise


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append the log of nmt to a file in this context, with the error that ends it."""
    logger = logging.getLogger("nmt")
    handler = None
    with warn_of_errors(path):
        handler = _LogFile(path, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    try:
        yield
    except BaseException as error:
        if handler:  # and no other, for a command reports the error itself
            words = "failed: %s", (error,), None
            handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, *words))
        raise
    finally:
        if handler:
            logger.removeHandler(handler)
            with warn_of_errors(path):  # a disk may be full
                handler.close()


@dataclass
class Meter:
    """Sums over the updates since the last report."""

    loss: float = 0.0  # smoothed, over tokens
    nll: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    norm: float = 0.0  # of the last gradient

    def add(self, loss: float, nll: float, tokens: int, norm: float, seconds: float) -> None:
        self.loss += loss
        self.nll += nll
        self.tokens += tokens
        self.norm = norm
        self.seconds += seconds

    def report(self) -> dict[str, float]:
        """Return means per token, the speed, and the last gradient norm."""
        return {
            "loss": self.loss / self.tokens,
            "perplexity": math.exp(min(self.nll / self.tokens, 700)),
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
            "grad_norm": self.norm,
        }


class MetricsLog(ExitStack):
    """Reports on updates to files, a bar on a terminal, and the log; a `silent` rank does not."""

    def __init__(
        self, run: Path, step: int, last: int, options: Training, silent: bool = False
    ) -> None:
        super().__init__()
        self.run, self.options, self.silent = run, options, silent
        self.first_step, self.began = step, time.monotonic()
        self.board: Any = None
        self.on_line: Callable[[Line, Path], None] | None = None  # trainer.callback
        self.bar = self.enter_context(
            tqdm(
                total=last, initial=step, unit="update", leave=False,
                disable=silent or None,  # None: no bar where stderr is no terminal
            )
        )  # fmt: skip
        if not self.bar.disable:
            self.enter_context(logging_redirect_tqdm())
        if silent:
            return
        cut_back(run / METRICS, step)
        if options.tensorboard:
            self.open_board(step)
        if options.callback is not None:
            self.on_line = import_callback(options.callback)

    def open_board(self, step: int) -> None:
        """Open files of TensorBoard, if it is installed, and let the context close them."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            log.info("no files for TensorBoard: it is not installed (extra tb)")
            return
        with warn_of_errors(self.run / BOARD):
            self.board = SummaryWriter(str(self.run / BOARD), purge_step=step + 1)
            self.callback(warn_of_errors(self.run / BOARD)(self.board.close))

    def advance(self, step: int) -> None:
        self.bar.update()
        if self.bar.disable and step - self.first_step == ESTIMATE_AFTER and step < self.bar.total:
            log.info("about %s for %d more updates", self.time_left(step), self.bar.total - step)

    def time_left(self, step: int) -> str:
        """About how long the updates after this one will take, checkpoints included: h:mm:ss."""
        seconds = (time.monotonic() - self.began) / (step - self.first_step)
        return str(tqdm.format_interval(seconds * (self.bar.total - step)))

    def report(self, kind: str, line: Line) -> None:
        """Report a line of a kind: train, dev, skipped or split."""
        line = {"kind": kind, **line}
        if not self.silent:
            self.write(line)
        text, level = describe(line), logging.INFO if kind in ("train", "dev") else logging.WARNING
        if kind == "train":
            self.bar.set_postfix_str(text)
            if not self.bar.disable:
                return
            text = f"{text}, {self.time_left(line['step'])} left"
        log.log(level, f"step {line['step']}/{self.bar.total}, epoch {line['epoch']}: {text}")

    def write(self, line: Line) -> None:
        """Write a line to metrics.jsonl and TensorBoard, and call the callback until it fails."""
        with warn_of_errors(self.run / METRICS), (self.run / METRICS).open("ab") as file:
            file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        with warn_of_errors(self.run / BOARD):
            for key, value in line.items() if self.board else ():
                if key not in ("kind", "step", "lines") and isinstance(value, (int, float)):
                    self.board.add_scalar(f"{line['kind']}/{key}", value, line["step"])
        if self.on_line is None:
            return
        try:
            self.on_line(dict(line), self.run)
        except PLUGIN_ERRORS as error:
            self.on_line = None
            why = f"{where_raised(error)}; it is not called again"
            log.warning("trainer.callback=%s: %s", self.options.callback, why)


def describe(line: Line) -> str:
    """Turn a line of metrics.jsonl into words for the log.

    train: the updates since the last such line; dev: a checkpoint, before it is written; skipped:
    an update that was not made; split: one whose batches were halved, for want of memory.
    """
    kind = line["kind"]
    if kind == "train":
        speed, memory = line["tokens_per_second"], line["memory_bytes"] / GIGA
        rate = f"{speed:.0f} tokens/s, {memory:.1f} GB, lr {line['lr']:.3g}"
        return f"loss {line['loss']:.4f}, {rate}"
    if kind == "dev":
        named = [name for name in ("perplexity", "bleu", "chrf") if name in line]
        return ", ".join(f"dev {name} {line[name]:.4g}" for name in named)
    if kind == "split":
        return (
            "out of memory; its batches are halved (a lower trainer.batch_tokens with a higher "
            "trainer.accumulate is faster)"
        )
    lines, more = ", ".join(map(str, line["lines"][:10])), len(line["lines"]) - 10
    lines += f" and {more} more" if more > 0 else ""
    return f"loss or gradient is not finite; update skipped (lr {line['lr']:.3g}, lines {lines})"


def describe_environment(
    device: torch.device, number_format: str, options: Training, workers: int
) -> dict[str, str]:
    """Return versions, device, threads, ranks and number format, for checkpoints."""
    described = {
        "nmt": nmt.__version__,
        "torch": torch.__version__,
        "device": device_name(device),
        "threads": str(torch.get_num_threads()),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "format": number_format,
        "processor": this_machine().processor,
        "compiled": "yes" if options.compile else "no",
        "workers": str(workers),
    }
    if device.type == "cuda":
        described |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
            "deterministic": "yes" if options.deterministic else "no",
        }
    return described


def warn_of_changes(saved: dict[str, str], current: dict[str, str]) -> None:
    """Warn that a resumed run will differ in its last digits from an uninterrupted one."""
    changes = [
        f"{key} {saved.get(key, '?')} -> {value}"
        for key, value in current.items()
        if saved.get(key) != value
    ]
    if current.get("deterministic") == "no":
        changes.append("sums on a GPU have no fixed order without trainer.deterministic=true")
    if changes:
        log.warning("not bit-identical to a run without a stop: %s", ", ".join(changes))


def announce(
    run: Path, model: Transformer, described: dict[str, str], last: int, updates: int, pairs: int
) -> None:
    """Log the size of the model, the device, the number of pairs and of updates."""
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    threads = "" if "cuda" in described else f", threads: {described['threads']}"
    ranks = "" if described["workers"] == "1" else f", ranks: {described['workers']}"
    log.info(
        f"{run}: training {size:,} parameters in {described['format']} on {described['device']}"
        f"{threads}{ranks}; {last:,} updates, {updates:,} to an epoch of {pairs:,} pairs"
    )
    log.info("processor: %s", described["processor"])


def import_callback(callback: str) -> Callable[[Line, Path], None]:
    """Import the function of trainer.callback; UserError if that fails."""
    try:
        function = EntryPoint("callback", callback, "nmt").load()
    except PLUGIN_ERRORS as error:  # of any kind: the module runs
        raise UserError(
            f"trainer.callback={callback}: {where_raised(error)}; give package:function of what "
            "Python can import here (see PYTHONPATH)"
        ) from None
    if not callable(function):
        raise UserError(f"trainer.callback={callback}: not a function")
    return function
