"""Virtual environments of the peers, each with pinned versions and the torch that we have."""

import logging
import subprocess
import sys
import venv
from pathlib import Path

import torch

from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)
REQUIREMENTS = Path(__file__).parent / "peers" / "requirements"
MARK = "installed"  # holds what was installed, so that the same is not installed again


def install(directory: Path) -> list[str]:
    """Make the environments below a directory; returns the peers that could not be installed."""
    missing = []
    for wanted in sorted(REQUIREMENTS.glob("*.txt")):
        peer = wanted.stem
        where = directory / peer
        text = f"torch=={torch.__version__}\n{wanted.read_text(encoding='utf-8')}"
        mark = where / MARK
        if mark.exists() and mark.read_text(encoding="utf-8") == text:
            log.info("%s: installed before", peer)
            continue
        log.info("%s: installing", peer)
        try:
            _make(where, wanted)
        except UserError as error:
            log.warning("%s: %s", peer, error)
            missing.append(peer)
            continue
        mark.write_text(text, encoding="utf-8")
    return missing


def _make(where: Path, wanted: Path) -> None:
    """One environment: torch if the peer asks for it, the rest, and what must come alone."""
    venv.create(where, with_pip=True, clear=where.exists())
    lines = wanted.read_text(encoding="utf-8").split("\n")
    asked = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    alone = [line.removeprefix("alone:").strip() for line in asked if line.startswith("alone:")]
    rest = [line for line in asked if not line.startswith("alone:") and line != "torch"]
    if "torch" in asked:
        _torch(where)
    _pip(where, rest)
    if alone:
        _pip(where, ["--no-deps", *alone])


def _torch(where: Path) -> None:
    """The torch that runs here; a build for one kind of device may stand on PyTorch's own index."""
    exact = f"torch=={torch.__version__}"
    try:
        _pip(where, [exact])
    except UserError:
        kind = torch.__version__.partition("+")[2]
        if not kind:
            raise
        _pip(where, ["--extra-index-url", f"https://download.pytorch.org/whl/{kind}", exact])


def _pip(where: Path, words: list[str]) -> None:
    """Install into an environment; UserError with pip's last line if that fails."""
    python = where / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", *words]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        said = [line for line in done.stderr.decode("utf-8", "replace").split("\n") if line.strip()]
        raise UserError(f"pip: {said[-1] if said else done.returncode}", Exit.UNAVAILABLE)
