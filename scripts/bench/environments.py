"""Virtual environments of the peers, each with pinned versions and the torch that we have."""

import logging
import subprocess
import sys
import venv
from pathlib import Path

import torch

from nmt.errors import Exit, UserError
from scripts.bench.session import PEERS

log = logging.getLogger(__name__)


def install(directory: Path) -> None:
    """Make the environments below a directory; UserError (69) if one of them cannot be had.

    What is there already is not fetched again.
    """
    missing = []
    for requirements in sorted((PEERS / "requirements").glob("*.txt")):
        peer, text = requirements.stem, requirements.read_text(encoding="utf-8")
        log.info("%s: installing", peer)
        try:
            make(directory / peer, text.split("\n"))
        except UserError as error:
            log.warning("%s: %s", peer, error)
            missing.append(peer)
    if missing:
        names = ", ".join(missing)
        raise UserError(
            f"{directory}: without {names}; the bench runs and says so", Exit.UNAVAILABLE
        )


def make(environment: Path, lines: list[str]) -> None:
    venv.create(environment, with_pip=True)
    packages = [line for line in lines if line and not line.startswith(("#", "alone:"))]
    if "torch" in packages:
        packages.remove("torch")
        kind = torch.__version__.partition("+")[2]  # stands on PyTorch's own index alone
        index = ["--extra-index-url", f"https://download.pytorch.org/whl/{kind}"] if kind else []
        pip(environment, *index, f"torch=={torch.__version__}")
    pip(environment, *packages)
    for line in lines:
        if line.startswith("alone:"):
            pip(environment, "--no-deps", line.removeprefix("alone:").strip())


def pip(environment: Path, *arguments: str) -> None:
    command = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().split("\n")
        raise UserError(f"pip: {lines[-1] or done.returncode}", Exit.UNAVAILABLE)
