"""Other toolkits: their environments, and the settings in which each is fastest here.

A setting is what a toolkit leaves to its user: workers and their threads, sentences or tokens of a
batch, which kernels of attention. The best one depends on the processor, so all that make sense
take turns before the rounds that are reported: another one would flatter us.
"""

import logging
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nmt.config.settings import Settings
from nmt.errors import Exit, UserError
from scripts.bench import rounds
from scripts.bench.corpus import LONGEST
from scripts.bench.rounds import Candidate
from scripts.bench.session import Session

log = logging.getLogger(__name__)
SCRIPTS = Path(__file__).parent / "peers"
REQUIREMENTS = SCRIPTS / "requirements"
Setup = dict[str, int | str]
TRAINING_SETUPS: list[Setup] = [{"attention": kind} for kind in ("sdpa", "eager")]
ROUNDS = 2  # of the search for the fastest settings, after a warm-up


def install(directory: Path) -> None:
    """Make an environment for each toolkit; UserError (69) if one of them cannot be had.

    What is there already is not fetched again.
    """
    missing = []
    for requirements in sorted(REQUIREMENTS.glob("*.txt")):
        peer, text = requirements.stem, requirements.read_text(encoding="utf-8")
        log.info("%s: installing", peer)
        try:
            make_environment(directory / peer, text.split("\n"))
        except UserError as error:
            log.warning("%s: %s", peer, error)
            missing.append(peer)
    if missing:
        names = ", ".join(missing)
        raise UserError(
            f"{directory}: without {names}; the bench runs and says so", Exit.UNAVAILABLE
        )


def make_environment(environment: Path, lines: list[str]) -> None:
    """Install pinned versions and the torch that we have."""
    venv.create(environment, with_pip=True)
    packages = [line for line in lines if line and not line.startswith("#")]
    if "torch" in packages:
        packages.remove("torch")
        kind = torch.__version__.partition("+")[2]  # only PyTorch's own index has it
        index = ["--extra-index-url", f"https://download.pytorch.org/whl/{kind}"] if kind else []
        pip(environment, *index, f"torch=={torch.__version__}")
    pip(environment, *packages)


def pip(environment: Path, *arguments: str) -> None:
    command = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().split("\n")
        raise UserError(f"pip: {lines[-1] or done.returncode}", Exit.UNAVAILABLE)


def choose(session: Session, names: Iterable[str]) -> list[str]:
    """The toolkits among `names` that --peers and --peer select."""
    if session.options.peers == "none":
        return []
    chosen = session.options.peer
    return [name for name in names if chosen is None or name.rstrip("_") in chosen]


def make_peer(
    session: Session, peer: str, precision: str, settings: Settings, **job: Any
) -> Candidate:
    """Another toolkit with a model of the same size; one that cannot run if it is not installed."""
    name, directory = f"{peer} {precision}", Path(session.options.peers)
    python = directory / peer / "bin" / "python" if directory.is_dir() else directory
    if not python.exists():
        return Candidate(name, failed=f"not installed; the argument peers {directory} installs it")
    job |= {"precision": precision, "model": asdict(settings.model), "vocab": session.vocab}
    path = session.write_job(job | {"longest": LONGEST + 28})
    argv = [str(python), str(SCRIPTS / f"{peer}.py"), path]
    return Candidate(name, argv, session.options.threads, session.ends)


def list_decoding_setups(threads: int, device: str) -> list[Setup]:
    """All settings of CTranslate2 to be tried, with so many threads."""
    on_cpu = device == "cpu"
    workers = [n for n in range(1, threads + 1) if threads % n == 0] if on_cpu else [1]
    return [
        {"workers": count, "threads": threads // count, "tokens": tokens}
        for count in workers
        for tokens in ((512, 1024, 2048) if on_cpu else (2048, 16384))
    ]


def find_fastest(
    make: Callable[[Setup], Candidate], setups: Sequence[Setup], quick: bool = False
) -> tuple[Setup, str]:
    """Let all settings take turns; returns the fastest, or the first if none runs, and a line.

    The line is as `workers 2, threads 1, tokens 1024 (the fastest of 6)`.
    """
    count, warmup = (1, 0) if quick else (ROUNDS, 1)
    candidates = [make(setup) for setup in setups]
    rounds.benchmark(candidates, count, warmup)
    best = rounds.fastest(candidates)
    chosen = setups[0 if best is None else candidates.index(best)]
    values = ", ".join(f"{name} {value}" for name, value in chosen.items())
    return chosen, f"{values} (the fastest of {len(setups)})"
