"""An ensemble: several models that search together, and what they must have in common."""

from collections.abc import Sequence

from nmt.config.data import WORDS, columns_of
from nmt.encodings.limits import least
from nmt.errors import UserError
from nmt.modeldir import Trained


def combined(members: Sequence[Trained]) -> Trained:
    """The first model, with settings and facts that hold for all of them.

    Models may differ in encoding, size and training. Raises UserError where segmenter or vocabulary
    is not that of the first, and where no member's corpus had all columns that they read.
    """
    first = members[0]
    for number, other in enumerate(members[1:], start=2):
        for side in ("source", "target"):
            ours, theirs = getattr(first, side).to_json(), getattr(other, side).to_json()
            for part in ("segmenter", "vocabulary"):
                if ours[part] != theirs[part]:
                    raise UserError(
                        f"model {number} of {len(members)}: its {part} of the {side} is not that "
                        "of model 1; an ensemble needs models of one text preparation, such as "
                        "runs of one corpus with other seeds or encodings"
                    )
    if len(members) == 1:
        return first
    read = {name for member in members for name in member.model.columns} - {WORDS}
    complete = [m.settings for m in members if read <= set(columns_of(m.settings.data))]
    if not complete:
        raise UserError(
            f"columns {', '.join(sorted(read))}: no model of the ensemble had all of them in its "
            "corpus; leave out the models that read other columns"
        )
    longest = least(member.facts["longest_source"] for member in members)
    return first._replace(settings=complete[0], facts={**first.facts, "longest_source": longest})
