"""Models of OpenNMT-py and fairseq, from random numbers, as CTranslate2's converters read them."""

import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram, learn_model
from nmt.toy import pairs
from tests.encodings.agreement import theirs

LINES = [line for pair in pairs(60, 3, 8, "opennmt") for line in pair]
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
DIM, HEADS, INNER, TAU, POSITIONS = 16, 2, 24, 3, 5000


class Checkpoint(dict[str, Tensor]):
    """The tensors of a checkpoint, drawn when they are asked for."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._draw = torch.Generator().manual_seed(7)
        self._shapes = {
            "emb_luts.0.weight": (vocabulary, DIM), "generator.weight": (vocabulary, DIM),
            "generator.bias": (vocabulary,), "w_1.weight": (INNER, DIM), "w_1.bias": (INNER,),
            "w_2.weight": (DIM, INNER), "positions_embeddings.weight": (2 * TAU + 1, DIM // HEADS),
        }  # fmt: skip

    def __missing__(self, name: str) -> Tensor:
        if name.endswith(".pe"):
            at = torch.arange(POSITIONS)[:, None]  # in float32: far positions are rounded
            angles = at * torch.exp(torch.arange(0, DIM, 2) * -(math.log(10000.0) / DIM))
            self[name] = torch.stack([angles.sin(), angles.cos()], -1).reshape(POSITIONS, 1, DIM)
            return self[name]
        wide = (DIM, DIM) if "linear" in name and name.endswith("weight") else (DIM,)
        shape = next((s for end, s in self._shapes.items() if name.endswith(end)), wide)
        self[name] = torch.randn(shape, generator=self._draw) * (0.6 if len(shape) > 1 else 0.3)
        if name.endswith("weight") and shape == (DIM,):
            self[name] += 1  # of a norm
        if name == "generator.bias":
            self[name][SPECIAL.index("</s>")] += 4  # so that some outputs end
        return self[name]

    def get(self, name: str, default: Any = None) -> Any:
        """No map of attention has a bias here, as in OpenNMT-py 3."""
        return None if "attn" in name and name.endswith("bias") else self[name]


def make(directory: Path, relative: bool, precision: str = "float32", **config: Any) -> Path:
    """Write a directory, with one SentencePiece model for both sides."""
    directory.mkdir()
    names = segment(directory)
    opennmt_py = theirs("ctranslate2.converters.opennmt_py")  # which imports transformers
    spec = opennmt_py._get_model_spec_seq2seq(
        options(relative), Checkpoint(len(names)), [names], [names], 1
    )
    save(spec, directory, precision, config)
    return directory


def options(relative: bool) -> Namespace:
    """The options of OpenNMT-py with which a model was trained."""
    return Namespace(
        enc_layers=2, dec_layers=1, heads=HEADS, max_relative_positions=TAU if relative else 0,
        position_encoding=not relative, pos_ffn_activation_fn="relu", encoder_type="transformer",
        decoder_type="transformer",
    )  # fmt: skip


def segment(directory: Path) -> list[str]:
    """Write source.spm and target.spm; returns all names of the vocabulary."""
    model = learn_model(LINES, 60, 1.0)
    for side in ("source", "target"):
        (directory / f"{side}.spm").write_bytes(model)
    return [*SPECIAL, *Unigram(Tokenizer("none", "none", "de"), model).pieces]


def save(spec: Any, directory: Path, precision: str, config: Mapping[str, Any]) -> None:
    """Write a specification to a directory."""
    for key, value in config.items():
        setattr(spec.config, key, value)
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(str(directory))
