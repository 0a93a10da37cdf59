"""Languages by name, and pieces that stand for them: `__de__` (M2M100), `deu_Latn`, `>>de<<`."""

import re
from difflib import get_close_matches

from nmt.config.settings import Settings
from nmt.errors import UserError
from nmt.text.vocab import SPECIALS, Vocabulary

NAMES = """
amh:am arb:ar bel:be ben:bn bod:bo bul:bg cat:ca ces:cs cmn:zh dan:da deu:de ell:el eng:en fin:fi
fra:fr glg:gl guj:gu hin:hi hye:hy ita:it jpn:ja kan:kn kaz:kk khm:km kor:ko lao:lo ltz:lb mal:ml
mar:mr mya:my nld:nl oci:oc pan:pa pol:pl por:pt rus:ru slk:sk spa:es tam:ta tat:tt tel:te tha:th
ukr:uk yue:zh zho:zh zht:zh zhs:zh zt:zh lzh:zh
"""  # of NLLB, Argos (zt) or ISO 639, in two letters, if a library has rules for them
_CODE = re.compile("__(\\w+)__|>>(.*)<<|([a-z]{3}_[A-Z][a-z]{3})")


def language_id(vocabulary: Vocabulary, name: str | None, key: str) -> int | None:
    """The id of a language by its piece, or what is within the brackets of that; None for none.

    UserError where the vocabulary has none of that name; `key`: of the setting that names it.
    """
    if name is None:
        return None
    ids: dict[str, int] = {}
    for number, piece in enumerate(vocabulary.to_json(), start=SPECIALS):
        if code := _CODE.fullmatch(piece):
            ids[next(filter(None, code.groups()), piece)] = ids[piece] = number
    if name not in ids:
        if not ids:
            raise UserError(f"{key}={name}: this model knows no language by a piece; leave it out")
        near = get_close_matches(name, ids, n=5, cutoff=0.5) or sorted(ids)[:5]
        raise UserError(
            f"{key}={name}: the model has no piece for that language; it has "
            f"{len({*ids.values()})} of them, such as {', '.join(near)}"
        )
    return ids[name]


def languages_of(settings: Settings) -> tuple[str, str]:
    """The codes of source and target, as `short_code` gives them.

    Where pieces name both languages, decode has them, and data may have none. A piece before the
    source alone is `>>fr<<` of OPUS-MT, which says into which language to translate.
    """
    data, decode = settings.data, settings.decode
    source = decode.source_language if decode.target_language else None
    target = decode.target_language or data.target_language
    return short_code(source or data.source_language), short_code(target)


def short_code(language: str) -> str:
    """The code of two letters, if there is one, of names such as zho_Hans, zh-TW and __zh__."""
    code = language.strip("_").replace("-", "_").split("_")[0].lower()
    return dict(re.findall(r"(\w+):(\w+)", NAMES)).get(code, code)
