"""Does a run that stopped and went on equal one that never did, with trainer.deterministic?"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nmt.config.settings import Settings
from nmt.corpus.prepare import Prepared
from nmt.errors import UserError
from nmt.modeldir import WEIGHTS
from nmt.training.checkpoint import OPTIMIZER, newest
from nmt.training.directory import open_run
from nmt.training.run import fit
from scripts.bench import corpus
from scripts.bench.session import Session

VOCAB, PAIRS = 200, 100
STOP, LAST = 3, 6  # updates


def resumed(session: Session) -> Callable[[Settings], float]:
    """Compare weights and moments: 0 if the bits are the same, else NaN."""

    def share(settings: Settings) -> float:
        place = session.place("resuming")
        made = corpus.make(place, settings, VOCAB, LAST, pairs=PAIRS)
        data = corpus.prepared(made.store, VOCAB)
        whole = train(place / "whole", settings, data, LAST)
        train(place / "parts", settings, data, STOP)
        return 0.0 if train(place / "parts", settings, data, LAST) == whole else math.nan

    return share


def train(path: Path, settings: Settings, data: Prepared, last: int) -> list[bytes]:
    """Train up to an update, or go on to it; gives what the newest checkpoint holds."""
    options = replace(settings.trainer, deterministic=True, max_steps=last)
    settings = replace(settings, trainer=options)
    with open_run(path, settings) as run:
        fit(data, run)
    if (saved := newest(path)) is None:
        raise UserError(f"{path}: training left no checkpoint")
    return [(saved.path / name).read_bytes() for name in (WEIGHTS, OPTIMIZER)]
