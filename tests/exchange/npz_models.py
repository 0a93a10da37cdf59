"""Marian models in their own format, from random weights: as OPUS-MT's and Firefox's releases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sentencepiece import SentencePieceProcessor

from nmt.toy import pairs
from tests.text.test_segmenter_files import spm_model

DIM, INNER, LAYERS = 16, 24, {"encoder": 2, "decoder": 1}
TEXT = pairs(200, 3, 8, "npz")
OPTIONS: dict[str, Any] = {  # less those that have their default values
    "type": "transformer", "dim-emb": DIM, "transformer-dim-ffn": INNER, "transformer-heads": 2,
    "enc-depth": LAYERS["encoder"], "dec-depth": LAYERS["decoder"], "tied-embeddings-src": False,
    "transformer-depth-scaling": True, "version": "v1.12.0 65bf82f 2023-02-21 09:56:29 -0800",
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "opus": {"codes": (">>de<<", ">>fr<<")},
    "separate": {"tie": "target", "activation": "relu"},
    "untied": {"tie": "none"},
    "firefox": {"spm": True},
}


def make(
    directory: Path, tie: str = "all", activation: str = "swish", spm: bool = False,
    codes: tuple[str, ...] = (), seed: int = 3, symbols: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Write a directory; `spm`: the vocabulary is one SentencePiece model for both sides.

    `symbols`: pieces that this model knows beforehand.
    """
    directory.mkdir(parents=True)
    texts = [[pair[side] for pair in TEXT] for side in (0, 1)]
    if tie == "all":
        texts = [[line for pair in TEXT for line in pair]] * 2
    names = ["vocab.deen.spm"] * 2 if spm else ["source.spm", "target.spm"]
    # as Marian trains it, where it is the vocabulary, or as OPUS-MT does
    ids: dict[str, Any] = {"eos_id": 0, "unk_id": 1, "bos_id": -1} if spm else {}
    ids |= {"user_defined_symbols": [*symbols]} if symbols else {}
    vocabularies = [
        _pieces(
            spm_model(directory / name, text, vocab_size=60, hard_vocab_limit=False, **ids), codes
        )
        for name, text in zip(names, texts, strict=True)
    ]
    if not spm:
        names = ["opus.src.vocab.yml", "opus.trg.vocab.yml"] if tie != "all" else ["opus.yml"] * 2
        for name, vocabulary in zip(names, vocabularies, strict=True):
            lines = {piece: number for number, piece in reversed([*enumerate(vocabulary)])}
            (directory / name).write_text(yaml.safe_dump(lines, sort_keys=False), encoding="utf-8")
    decoder = {"models": ["/train/opus.npz"], "vocabs": [f"/train/{name}" for name in names],
               "beam-size": 6, "normalize": 1, "word-penalty": 0}  # fmt: skip
    (directory / "decoder.yml").write_text(yaml.safe_dump(decoder), encoding="utf-8")
    options = OPTIONS | {
        "transformer-ffn-activation": activation, "tied-embeddings-all": tie == "all",
        "tied-embeddings": tie == "target", "dim-vocabs": [*map(len, vocabularies)],
    }  # fmt: skip
    save(
        directory / "opus.npz",
        weights(tie, len(vocabularies[0]), len(vocabularies[1]), seed),
        options,
    )
    return directory


def weights(tie: str, source: int, target: int, seed: int = 3) -> dict[str, Any]:
    """Random tensors by Marian's names: maps [in, out], biases and norms [1, out]."""
    draw = np.random.default_rng(seed)

    def random(*shape: int) -> Any:
        scale = 0.4 if shape[0] > 1 else 0.2
        return (draw.standard_normal(shape) * scale).astype(np.float32)

    tensors = {"Wemb": random(source, DIM)} if tie == "all" else {
        "encoder_Wemb": random(source, DIM), "decoder_Wemb": random(target, DIM)}  # fmt: skip
    if tie == "none":
        tensors["decoder_ff_logit_out_W"] = random(DIM, target)
    tensors["decoder_ff_logit_out_b"] = random(1, target)
    tensors["decoder_ff_logit_out_b"][0, 0] += 2.5  # so that some outputs end
    for stack, layers in LAYERS.items():
        for directory in (f"{stack}_l{n + 1}" for n in range(layers)):
            for part in ("self", "context")[: 1 + (stack == "decoder")]:
                for letter in "qkvo":
                    tensors[f"{directory}_{part}_W{letter}"] = random(DIM, DIM)
                    tensors[f"{directory}_{part}_b{letter}"] = random(1, DIM)
                tensors[f"{directory}_{part}_Wo_ln_scale"] = random(1, DIM) + 1
                tensors[f"{directory}_{part}_Wo_ln_bias"] = random(1, DIM)
            tensors[f"{directory}_ffn_W1"] = random(DIM, INNER)
            tensors[f"{directory}_ffn_b1"] = random(1, INNER)
            tensors[f"{directory}_ffn_W2"] = random(INNER, DIM)
            tensors[f"{directory}_ffn_b2"] = random(1, DIM)
            tensors[f"{directory}_ffn_ffn_ln_scale"] = random(1, DIM) + 1
            tensors[f"{directory}_ffn_ffn_ln_bias"] = random(1, DIM)
    return tensors


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and options of an npz."""
    with np.load(path) as file:
        tensors = {name: file[name] for name in file.files}
    options = yaml.safe_load(tensors.pop("special:model.yml").tobytes().rstrip(b"\0"))
    return tensors, options


def save(path: Path, tensors: dict[str, Any], options: dict[str, Any]) -> None:
    """Write an npz as Marian does, which pads the options."""
    text = np.frombuffer(yaml.safe_dump(options).encode() + b"\0" * 13, np.int8)
    np.savez(path, **tensors | {"special:model.yml": text})


def _pieces(model: Path, codes: tuple[str, ...]) -> list[str]:
    processor = SentencePieceProcessor(model_file=str(model))
    pieces = [processor.id_to_piece(i) for i in range(len(processor))]
    return ["</s>", "<unk>", *codes, *(p for p in pieces if p not in ("<s>", "</s>", "<unk>"))]
