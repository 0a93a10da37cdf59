"""Whether a model can be trained on a corpus: development lines too long, integers of columns."""

import logging

import numpy as np

from nmt.config.data import Data
from nmt.corpus.examples import joining_of
from nmt.corpus.pairs import Pairs
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.text.columns import out_of_range

log = logging.getLogger(__name__)


def leave_out_long(dev: Pairs, data: Data) -> Pairs:
    """Return the development pairs that are no longer than any training example may be.

    One line of noise among them may take more memory than all of training, at the first checkpoint.
    Raises UserError (65) if none is left.
    """
    joining = joining_of(data)
    most = max(data.max_length, joining.max_length if joining else 0)
    pieces = np.maximum(dev.lengths["source"], dev.lengths["target"])
    rows = np.flatnonzero(pieces <= most)
    if len(rows) == len(dev):
        return dev
    longest = int(pieces.argmax())
    left_out = (
        f"{len(dev) - len(rows):,} of its {len(dev):,} pairs have more than {most} pieces, as no "
        f"training example has (the longest, line {dev.place(longest)}: {pieces[longest]:,})"
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
