"""Models of the Hugging Face hub, downloaded by huggingface_hub: the files that a reader needs."""

import re
from pathlib import Path

from nmt.errors import Exit, UserError
from nmt.exchange.adapter import Library

HUB = Library("huggingface_hub", "hub")
FILES = (
    *("*config.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json"),
    *("*vocab*", "*.spm"),
    *("sentencepiece.bpe.model", "source.json", "target.json", "model*.safetensors*", "model.bin"),
)  # patterns of names; not what other frameworks read
OTHERS = ("pytorch_model*.bin*", "*.npz", "*.yml")  # where there is none of those weights

_NAME = re.compile(r"(https:/+huggingface\.co/)?([\w.-]+)/([\w.-]+)/?", re.A)


def name_of(path: Path) -> str | None:
    """OWNER/NAME, where a missing path may be one on the hub; else None."""
    name = _NAME.fullmatch(str(path))  # in a path // is /
    if name is None or path.exists() or Path(name[2]).is_dir():
        return None
    return f"{name[2]}/{name[3]}"


def download(name: str) -> Path:
    """The directory of a model called OWNER/NAME, in huggingface_hub's cache.

    UserError (69) where the library is not installed, or the model cannot be had.
    """
    HUB.require(name)
    from huggingface_hub import snapshot_download

    try:
        place = Path(snapshot_download(name, allow_patterns=[*FILES]))
        if not any([*place.glob("model*.safetensors*"), *place.glob("model.bin")]):
            place = Path(snapshot_download(name, allow_patterns=[*FILES, *OTHERS]))
    except Exception as error:  # of a network it raises what its own libraries do
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{name}: cannot be downloaded from the Hugging Face hub ({reason}); where there is a "
            "network, hf download or git clone makes a directory, which can be imported",
            Exit.UNAVAILABLE,
        ) from None
    return place
