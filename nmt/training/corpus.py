"""The prepared corpus of a run, and whether its model can be trained on it."""

import logging
from pathlib import Path

import numpy as np

from nmt import modeldir
from nmt.config.data import Data
from nmt.config.settings import Settings, freeze
from nmt.corpus import prepare as data
from nmt.corpus.examples import joining_of
from nmt.corpus.pairs import Pairs
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.system import manifest
from nmt.text.columns import out_of_range
from nmt.text.lines import find_packed
from nmt.text.segmenter_files import sides_of_files
from nmt.text.side import Sides

log = logging.getLogger(__name__)


def prepare(settings: Settings, run: Path | None = None) -> Prepared:
    """Prepare the corpus of settings, unless it is prepared already.

    With trainer.init_from, segmenters and vocabularies are the parent's. If `run`, the directory of
    the run, has a checkpoint, parent and files of a segmenter may be gone. Raises UserError for
    text that cannot be used, and 65 or 66 for an unreadable parent or file.
    """
    prepared = data.prepare(settings.data, settings.segmenter, _read_sides(settings, run))
    names = settings.data.test_source, settings.data.test_target
    tests = [find_packed(Path(name or "")) for name in names]
    if not all(path.is_file() for path in tests):
        return prepared
    try:
        overlap, total = data.count_overlap(prepared, *tests)
    except UserError as error:  # nmt-evaluate will say so, too
        log.warning("test text: %s", error)
    else:
        if overlap:
            why = "are also training pairs; its scores are too good"
            log.warning(f"test text: {overlap:,} of its {total:,} pairs {why}")
    return prepared


def fingerprint(settings: Settings, run: Path | None = None) -> str:
    """Return a hash of all that determines the corpus."""
    return data.fingerprint(settings.data, settings.segmenter, _read_sides(settings, run))


def key(settings: Settings) -> bytes:
    """Return a key of the prepared corpus: runs with equal keys share it."""
    plain = freeze(settings)
    return manifest.dump([plain["data"], plain["segmenter"], plain["trainer"]["init_from"]])


def _read_sides(settings: Settings, run: Path | None) -> Sides | None:
    """Return segmenters and vocabularies of the parent, or of files; None: they are learned.

    If parent or files are gone, they are read from the checkpoint of the run.
    """
    parent, choice = settings.trainer.init_from, settings.segmenter
    saved = run if run is not None and modeldir.checkpoints(run / modeldir.CHECKPOINTS) else None
    if parent is not None:
        return modeldir.read_sides(saved or parent)
    if choice.kind not in ("spm", "codes"):
        return None
    try:
        return sides_of_files(settings.data, choice)
    except UserError as error:
        if saved is None or error.code != Exit.NO_INPUT:
            raise
        return modeldir.read_sides(saved)


def leave_out_long(dev: Pairs, options: Data) -> Pairs:
    """Return the development pairs that are no longer than any training example may be.

    One line of noise among them may take more memory than all of training, at the first checkpoint.
    Raises UserError (65) if none is left.
    """
    joining = joining_of(options)
    most = max(options.max_length, joining.max_length if joining else 0)
    pieces = np.maximum(dev.lengths["source"], dev.lengths["target"])
    rows = np.flatnonzero(pieces <= most)
    if len(rows) == len(dev):
        return dev
    longest = int(pieces.argmax())
    left_out = (
        f"{len(dev) - len(rows):,} of its {len(dev):,} pairs have more than {most} pieces, as no "
        f"training example has (the longest, line {dev.locate(longest)}: {pieces[longest]:,})"
    )
    if not len(rows):
        raise UserError(f"dev text: {left_out}; raise data.max_length", Exit.DATA)
    log.warning("dev text: %s; left out", left_out)
    return dev.select(rows)


def check_data(prepared: Prepared, model: Transformer) -> None:
    """Raise UserError (exit 65) for integers of columns that an encoding has no row for."""
    for name, store in (("train", prepared.train), ("dev", prepared.dev)):
        for column, allowed in model.column_ranges.items():
            values = store.columns[column]
            for value in (int(values.min()), int(values.max())):
                if value not in allowed:
                    per_word = store.per[column] == "word"
                    raise out_of_range(column, value, allowed, f"data.{name}", per_word)
