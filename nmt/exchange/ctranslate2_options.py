"""The options with which CTranslate2 searches as nmt does."""

from typing import Any

from nmt.config.settings import Decode
from nmt.exchange.ctranslate2_names import Naming
from nmt.text.vocab import BOS, PAD

LONGEST = 2048  # tokens that tables of positions are written for, where the encoding has no end

# A search with a length penalty ends with so many times beam_size finished hypotheses. nmt goes on
# while an open one is better than all of them: of 200 lines of the embedded corpus that changed 8
# with 1, and none with 1.5 to 4.
PATIENCE = 2


def search_options(naming: Naming, decode: Decode) -> dict[str, Any]:
    """How `translate_batch` must search to find what nmt finds, but for the limit of its length.

    With a length penalty that CTranslate2 does not have, it is to give all hypotheses and their
    scores, so that they can be ranked anew.
    """
    beam = decode.beam_size
    penalised = beam > 1 and decode.alpha > 0
    patience = PATIENCE if penalised else 1
    anew = is_ranked_anew(decode)
    return {
        "suppress_sequences": [[naming.target[i]] for i in (PAD, BOS) if naming.target[i]],
        "disable_unk": decode.unknown != "allow",
        "min_decoding_length": 0,  # by default 1: no output is empty
        "max_input_length": 0,  # all of it: by default what is beyond 1,024 is not read
        "beam_size": beam,
        "patience": patience,
        "length_penalty": decode.alpha if penalised else 0,
        "num_hypotheses": beam * patience if anew else 1,
        "return_scores": anew,
    }


def is_ranked_anew(decode: Decode) -> bool:
    """Whether hypotheses are scored by a length penalty that CTranslate2 does not have."""
    return decode.beam_size > 1 and decode.alpha > 0 and decode.length_penalty == "wu"


def output_options(naming: Naming, sources: int, limit: int) -> dict[str, Any]:
    """Options with which the outputs of so many sources follow a language, if there is one.

    `limit`: of pieces, to which CTranslate2 counts those before an output, too.
    """
    prefix = {"target_prefix": [naming.of_target([])] * sources} if naming.after else {}
    return {"max_decoding_length": limit + len(naming.after)} | prefix
