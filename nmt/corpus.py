"""The prepared corpus of a run: its own segmenter is learned, or is that of the parent."""

from pathlib import Path

from nmt import modeldir
from nmt.config import Settings, freeze
from nmt.data import prepare as data
from nmt.data.prepare import Prepared
from nmt.data.side import Sides
from nmt.storage import manifest
from nmt.storage.modelpath import checkpoints


def prepare(settings: Settings, run: Path | None = None) -> Prepared:
    """Prepare the corpus of settings, or take the prepared one if there is one.

    With trainer.init_from, text becomes the ids of that model, the parent. It may be gone by now
    if `run`, the directory of the run, has a checkpoint. Raises UserError as `data.prepare.prepare`
    does, and 65 or 66 for a parent that cannot be read.
    """
    return data.prepare(settings.data, settings.segmenter, _sides(settings, run))


def fingerprint(settings: Settings, run: Path | None = None) -> str:
    """Tell which corpus that is, by all that matters; raises what `prepare` does."""
    return data.fingerprint(settings.data, settings.segmenter, _sides(settings, run))


def key(settings: Settings) -> bytes:
    """What chooses the prepared corpus: runs that share it need preparing once."""
    plain = freeze(settings)
    return manifest.dump([plain["data"], plain["segmenter"], plain["trainer"]["init_from"]])


def _sides(settings: Settings, run: Path | None) -> Sides | None:
    """Segmenters and vocabularies to be taken over; None where they are to be learned."""
    if settings.trainer.init_from is None:
        return None
    begun = run is not None and checkpoints(run / "checkpoints")
    return modeldir.sides(run if run is not None and begun else settings.trainer.init_from)
