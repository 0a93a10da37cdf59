"""What all parts of one bench share, and where its contestants' programs lie."""

import sys
from pathlib import Path
from typing import NamedTuple

from scripts.bench.rounds import Absent, Contestant, Worker

SCRIPTS = Path(__file__).parent / "peers"


class Setup(NamedTuple):
    """What all parts of one bench share."""

    directory: Path  # of files that live as long as the bench does
    threads: int
    device: str
    rounds: int
    quick: bool  # tiny sizes, to see that it runs
    peers: str | None  # see `python_of`; None: no peers


def own(module: str, job: str) -> list[str]:
    """The command of a worker of the house."""
    return [sys.executable, "-m", module, job]


def python_of(peer: str, peers: str) -> Path | None:
    """The Python that has a peer: of its environment below a directory, or a given one."""
    given = Path(peers)
    if given.is_dir():
        found = given / peer / "bin" / "python"
        return found if found.exists() else None
    return given if given.exists() else None


def peer(peer: str, name: str, job: str, setup: Setup) -> Contestant:
    """A worker of another library; one that says so where it is not installed."""
    python = None if setup.peers is None else python_of(peer, setup.peers)
    if python is None:
        return Absent(name, f"not installed; the argument peers {setup.peers or 'DIR'} installs it")
    return Worker(name, [str(python), str(SCRIPTS / f"{peer}.py"), job], setup.threads)
