"""Progress of long loops: a bar on a terminal, otherwise a log line now and then."""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TypeVar

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

Part = TypeVar("Part")
SECONDS = 30  # between log lines
tqdm.monitor_interval = 0  # no further thread: see system.pool.may_fork

log = logging.getLogger(__name__)


def track(
    parts: Iterable[Part], title: str, sizes: Sequence[int], unit: str = "lines"
) -> Iterator[Part]:
    """Yield the parts of a text, of as many lines as `sizes` says, and show how many are done."""
    last, done, lines = time.monotonic(), 0, sum(sizes)
    with (  # disable=None: no bar where stderr is no terminal
        tqdm(desc=title, total=lines, unit=f" {unit}", disable=None, leave=False) as bar,
        nullcontext() if bar.disable else logging_redirect_tqdm(),
    ):
        for part, size in zip(parts, sizes, strict=True):
            yield part
            done += size
            bar.update(size)
            if bar.disable and time.monotonic() - last >= SECONDS:
                log.info("%s: %s of %s %s", title, f"{done:,}", f"{lines:,}", unit)
                last = time.monotonic()
