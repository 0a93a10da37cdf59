"""Pieces that stand for languages: `__de__` in M2M100, `deu_Latn` in NLLB, `>>de<<` in Marian."""

import re
from difflib import get_close_matches

from nmt.data.vocab import SPECIALS, Vocabulary
from nmt.errors import UserError

_CODE = re.compile("__(\\w+)__|>>(.*)<<|([a-z]{3}_[A-Z][a-z]{3})")


def language_id(vocabulary: Vocabulary, name: str | None, key: str) -> int | None:
    """The id of a language by its piece, or what is within the brackets of that; None for none.

    UserError where the vocabulary has none of that name; `key`: of the setting that names it.
    """
    if name is None:
        return None
    known: dict[str, int] = {}
    for number, piece in enumerate(vocabulary.to_json(), start=SPECIALS):
        if code := _CODE.fullmatch(piece):
            known[next(filter(None, code.groups()), piece)] = known[piece] = number
    if name not in known:
        if not known:
            raise UserError(f"{key}={name}: this model knows no language by a piece; leave it out")
        near = get_close_matches(name, known, n=5, cutoff=0.5) or sorted(known)[:5]
        raise UserError(
            f"{key}={name}: the model has no piece for that language; it has "
            f"{len({*known.values()})} of them, such as {', '.join(near)}"
        )
    return known[name]
