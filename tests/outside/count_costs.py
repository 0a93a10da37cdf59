"""Runs the module of a command and writes what it cost: count_costs.py WHAT FILE MODULE ARGUMENTS.

WHAT: calls, of Python functions; operations, of torch; waits, operations among them that read a
number, or whose result has a size that the numbers decide, for which the host waits on a GPU.
"""

import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

WAITS = (
    *("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "_unique2"),
    *("unique_dim", "unique_consecutive", "bincount", "repeat_interleave"),
)
counts: Counter[str] = Counter()


class Counting(TorchDispatchMode):
    """Counts the operations of torch, those of backward passes included."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counts["operations"] += 1
        counts["waits"] += func.overloadpacket.__name__ in WAITS
        return func(*args, **(kwargs or {}))


def count_call(frame: Any, event: str, argument: Any) -> None:
    counts["calls"] += event == "call"


def main() -> None:
    what, output, module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    code: Any = 0
    try:
        if what == "calls":
            sys.setprofile(count_call)
            runpy.run_module(module, run_name="__main__")
        else:
            with Counting():
                runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        code = end.code
    finally:
        sys.setprofile(None)
    Path(output).write_text(str(counts[what]), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
