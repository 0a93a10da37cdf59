"""Whether a model can be trained on a corpus: its tables hold the longest sentence."""

from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.text.columns import out_of_range


def check_data(prepared: Prepared, model: Transformer) -> None:
    """Raise UserError (exit 65) for a corpus that is too long for position tables."""
    for name, store in (("train", prepared.train), ("dev", prepared.dev)):
        limits = model.limits(training=name == "train")
        for side, lengths, limit in (
            ("source", store.source_lengths, limits.source),
            ("target", store.target_lengths, limits.target),
        ):
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
