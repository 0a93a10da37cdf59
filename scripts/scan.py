"""Turn SCAN's files into the parallel text that `experiment=scan` reads.

    python scripts/scan.py tasks_train_length.txt tasks_test_length.txt DIR [--longest 26]
    nmt-train -m experiment=scan data.root=DIR encoding=A,B,... runs=runs/scan
    nmt-evaluate RUN ... --sort --metric exact --lengths reference

SCAN: Lake and Baroni (2018), https://github.com/brendenlake/SCAN. A line of it is
`IN: jump twice OUT: I_JUMP I_JUMP`; the same with a tab between the two sides is read, too.
--longest N takes both files together and splits them anew (Newman et al. 2020): all commands of up
to N actions are trained on, and all longer ones are the test set.
"""

import argparse
import hashlib
import re
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nmt.cli.command import run
from nmt.errors import Exit, UserError
from nmt.system import atomic
from nmt.text.lines import read_text

LINE = re.compile(r"IN: (?P<command>[^\t]+?) OUT: (?P<action>[^\t]+)|([^\t]+)\t([^\t]+)")
DEV = 20  # one training command in so many goes to the development set


class Pair(NamedTuple):
    """A command and what to do."""

    command: str
    action: str


def command(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path, help="SCAN's training file of a split")
    parser.add_argument("test", type=Path, help="SCAN's test file of the same split")
    parser.add_argument("directory", type=Path, help="created if missing")
    parser.add_argument("--longest", type=int, metavar="N", help="actions of training, at most")
    options = parser.parse_args(argv)
    seen, test = read(options.train), read(options.test)
    if options.longest is not None:
        both, seen, test = [*seen, *test], [], []
        for pair in both:
            (seen if len(pair.action.split()) <= options.longest else test).append(pair)
    train = [pair for pair in seen if not is_dev(pair)]
    dev = [pair for pair in seen if is_dev(pair)]
    for name, pairs in (("train", train), ("dev", dev), ("test", test)):
        if not pairs:
            raise UserError(f"{options.train}: too few lines for a {name} set", Exit.DATA)
    try:
        options.directory.mkdir(parents=True, exist_ok=True)
        for name, pairs in (("train", train), ("dev", dev), ("test", test)):
            for side in Pair._fields:
                text = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
                atomic.replace(options.directory / f"{name}.{side}", text.encode())
    except OSError as error:
        raise UserError(f"{options.directory}: {error.strerror}", Exit.CANT_CREATE) from None
    sys.stdout.write(
        f"{options.directory}: train {len(train):,}, dev {len(dev):,}, test {len(test):,} pairs\n"
    )


def read(path: Path) -> list[Pair]:
    """The pairs of a file of SCAN; raises UserError (65) for a line of another form."""
    pairs = []
    for number, line in enumerate(read_text(path), 1):
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise UserError(
                f"{path}:{number}: expected `IN: command OUT: actions`, or a tab between the two",
                Exit.DATA,
            )
        pairs.append(Pair(*(" ".join(side.split()) for side in match.groups() if side)))
    return pairs


def is_dev(pair: Pair) -> bool:
    """Whether a training pair belongs to the development set: by its command, not its line."""
    digest = hashlib.sha256(pair.command.encode()).digest()
    return int.from_bytes(digest[:8], "big") % DEV == 0


main = partial(run, command)

if __name__ == "__main__":
    sys.exit(main())
