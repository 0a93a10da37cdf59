"""Whether a model can be trained on a corpus: what is longer than its tables, or than training."""

import logging

import numpy as np

from nmt.config.data import Data
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
    most = max(data.max_length, (data.join_length or 0) if data.join > 1 else 0)
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
    """Raise UserError (exit 65) for a corpus that is too long for position tables."""
    for name, store in (("train", prepared.train), ("dev", prepared.dev)):
        limits = model.limits(training=name == "train")
        for side, lengths in store.lengths.items():
            limit = getattr(limits, side)
            longest = int(lengths.argmax())
            if limit is not None and lengths[longest] + 1 > limit:  # eos, or bos
                raise UserError(
                    f"data.{name}_{side}:{store.place(longest)}: {lengths[longest]} pieces; "
                    f"the encoding holds {limit - 1}; give it longer tables, or remove it",
                    Exit.DATA,
                )
        for column, allowed in model.column_ranges.items():
            values = store.columns[column]
            for value in (int(values.min()), int(values.max())):
                if value not in allowed:
                    per_word = store.per[column] == "word"
                    raise out_of_range(column, value, allowed, f"data.{name}", per_word)
