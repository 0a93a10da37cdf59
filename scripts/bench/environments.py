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
MARK = "installed"  # holds what was installed, so that the same is not installed again


def install(directory: Path) -> None:
    """Make the environments below a directory; UserError (69) if one of them cannot be had."""
    missing = []
    for wanted in sorted((PEERS / "requirements").glob("*.txt")):
        peer, text = wanted.stem, wanted.read_text(encoding="utf-8")
        mark, state = directory / peer / MARK, f"torch=={torch.__version__}\n{text}"
        if mark.exists() and mark.read_text(encoding="utf-8") == state:
            log.info("%s: installed before", peer)
            continue
        log.info("%s: installing", peer)
        try:
            _make(directory / peer, [line.strip() for line in text.split("\n")])
        except UserError as error:
            log.warning("%s: %s", peer, error)
            missing.append(peer)
            continue
        mark.write_text(state, encoding="utf-8")
    if missing:
        names = ", ".join(missing)
        raise UserError(
            f"{directory}: without {names}; the bench runs and says so", Exit.UNAVAILABLE
        )


def _make(where: Path, lines: list[str]) -> None:
    """One environment: torch if the peer asks for it, the rest, and what must come alone."""
    venv.create(where, with_pip=True, clear=where.exists())
    wanted = [line for line in lines if line and not line.startswith("#")]
    alone = [line.removeprefix("alone:").strip() for line in wanted if line.startswith("alone:")]
    if "torch" in wanted:
        _torch(where)
    _pip(where, *(line for line in wanted if not line.startswith("alone:") and line != "torch"))
    if alone:
        _pip(where, "--no-deps", *alone)


def _torch(where: Path) -> None:
    """The torch that runs here; a build for one kind of device may stand on PyTorch's own index."""
    exact = f"torch=={torch.__version__}"
    try:
        _pip(where, exact)
    except UserError:
        kind = torch.__version__.partition("+")[2]
        if not kind:
            raise
        _pip(where, "--extra-index-url", f"https://download.pytorch.org/whl/{kind}", exact)


def _pip(where: Path, *arguments: str) -> None:
    """Install into an environment; UserError with pip's last line if that fails."""
    command = [str(where / "bin" / "python"), "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().split("\n")
        raise UserError(f"pip: {lines[-1] or done.returncode}", Exit.UNAVAILABLE)
