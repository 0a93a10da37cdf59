"""Directories of Hugging Face transformers, opened by its own classes or refused in one line."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nmt.errors import Exit, UserError, is_out_of_memory, visible
from nmt.exchange.adapter import TRANSFORMERS
from nmt.modeldir import CONFIG
from nmt.system import manifest

GENERATION, PIECES, TOKENIZER = "generation_config.json", "vocab.json", "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
JSON = "*config.json", "*vocab.json", TOKENIZER, "special_tokens_map.json", "added_tokens.json"
POINTER = b"version https://git-lfs.github.com/spec/"
MARIAN = "MarianMTModel", "MarianTokenizer"  # classes of transformers
M2M100 = "M2M100ForConditionalGeneration", "M2M100Tokenizer"
NLLB = M2M100[0], "NllbTokenizer"


def check(directory: Path, needed: Sequence[str]) -> None:
    """Raise UserError (65) for a file that is missing, a pointer of Git LFS, or damaged JSON."""
    refuse_pointers(directory, (".json", ".spm", ".model"))
    for where in (directory / name for name in needed):
        if not where.exists():
            raise UserError(f"{where}: the file is missing; the model is incomplete", Exit.DATA)
    for where in (file for pattern in JSON for file in sorted(directory.glob(pattern))):
        manifest.read(where, None)  # transformers passes over some that it refuses
    if (directory / "adapter_config.json").exists():
        raise UserError(f"{directory}: weights of an adapter; give the whole model", Exit.DATA)


def refuse_pointers(directory: Path, suffixes: tuple[str, ...]) -> None:
    """Raise UserError (65) for files that `git clone` left for `git lfs pull` to replace."""
    for where in sorted(directory.iterdir()):
        if where.suffix in suffixes and where.is_file():
            with where.open("rb") as file:
                is_pointer = file.read(len(POINTER)) == POINTER
            if is_pointer:
                what = "a pointer of Git LFS; git lfs pull, or hf download, brings the file itself"
                raise UserError(f"{where}: {what}", Exit.DATA)


def classes(directory: Path) -> tuple[str, str]:
    """The classes of transformers for the model and the tokenizer of a directory.

    UserError (65) for others, which may compute something else or put other pieces around a line.
    """

    def choose(name: str, key: str, known: Sequence[object]) -> Any:
        where = directory / name
        value = manifest.read(where, None).get(key) if where.exists() else None
        if value not in known:
            what = f"{key}={visible(value, 40)}: choose one of {', '.join(map(str, known))}"
            raise UserError(f"{where}: {what}; no other model can be read", Exit.DATA)
        return value

    if choose(CONFIG, "model_type", ("marian", "m2m_100")) == "marian":
        return MARIAN
    kinds = M2M100[1], NLLB[1], f"{NLLB[1]}Fast", "TokenizersBackend", None
    choose(TOKENIZER_CONFIG, "tokenizer_class", kinds)
    choose(TOKENIZER_CONFIG, "legacy_behaviour", (None, False))
    return M2M100 if (directory / PIECES).exists() else NLLB


@contextmanager
def in_transformers(directory: Path) -> Iterator[Any]:
    """Yield the package, silent; whatever it raises becomes a UserError (65) in one line.

    UserError (69) where it is not installed.
    """
    TRANSFORMERS.require(str(directory))
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield transformers
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"  # of tokenizers, which is no Exception
        foreign = is_panic or (isinstance(error, Exception) and not isinstance(error, UserError))
        if not foreign or is_out_of_memory(error):
            raise
        refuse_pointers(directory, (".safetensors", ".bin"))
        sentence = " ".join(str(error).split()).split(". ")[0]
        what = f"{type(error).__name__}: {visible(sentence, 300)}"
        if isinstance(error, NotImplementedError):  # of matrices that it compares, as it ties them
            what = f"weights of another shape than {CONFIG} asks for"
        raise UserError(f"{directory}: transformers cannot read it ({what})", Exit.DATA) from None


def open_tokenizer(directory: Path, **options: Any) -> Any:
    """The tokenizer of a directory; raises what `in_transformers` does."""
    with in_transformers(directory) as transformers:
        kind = getattr(transformers, classes(directory)[1])
        return kind.from_pretrained(directory, local_files_only=True, **options)


def open_model(directory: Path) -> Any:
    """The model of a directory in float32; raises what `in_transformers` does.

    And UserError (65) for a weight that is missing, which transformers draws at random, one that it
    does not know, and one of another shape.
    """
    with in_transformers(directory) as transformers:
        kind = getattr(transformers, classes(directory)[0])
        model, report = kind.from_pretrained(
            directory,
            local_files_only=True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the report names them
        )
    for what in ("missing", "mismatched", "unexpected"):
        keys = sorted(map(str, report[f"{what}_keys"]))
        # positions that transformers computes; M2M100 had them stored
        if names := [key for key in keys if not key.endswith("embed_positions.weights")]:
            raise UserError(
                f"{directory}: {what} weights, by {CONFIG}: {', '.join(names[:3])}", Exit.DATA
            )
    return model


def pieces_of(tokenizer: Any) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The ids of the pieces of source and target; one object where both have one vocabulary."""
    if hasattr(tokenizer, "lang_token_to_id"):  # M2M100
        ids = {**tokenizer.encoder, **tokenizer.lang_token_to_id}
    elif hasattr(tokenizer, "encoder"):  # Marian
        ids = tokenizer.encoder
        return ids, tokenizer.target_encoder if tokenizer.separate_vocabs else ids
    else:  # NLLB
        ids = tokenizer.get_vocab()
    return ids, ids


def language_id(ids: Mapping[str, int], name: str) -> int | None:
    """The id of a language by its code, such as de of `__de__`, or by its piece."""
    return ids.get(f"__{name}__", ids.get(name))
