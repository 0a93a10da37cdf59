"""M2M100 and NLLB models made by transformers, as the hub has them."""

import json
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor

from nmt.exchange.transformers_write import FIRST
from nmt.toy import pairs
from tests.encodings.agreement import theirs
from tests.exchange.marian_models import train
from tests.text.test_segmenter_files import spm_model

CODES = ["deu_Latn", "eng_Latn", "fra_Latn"]
KINDS: dict[str, tuple[str, str]] = {"nllb": ("deu_Latn", "eng_Latn"), "m2m100": ("de", "en")}


def make(directory: Path, kind: str = "nllb", dim: int = 16, updates: int = 0, **more: Any) -> Any:
    """Write a model of two rows more than pieces, random but for some updates; returns it."""
    directory.mkdir(parents=True)
    text = pairs(300, 4, 14, "m2m100")
    spm, both = directory / "sentencepiece.bpe.model", (side for pair in text for side in pair)
    spm_model(spm, both, vocab_size=120, model_type="bpe", hard_vocab_limit=False)
    processor = SentencePieceProcessor(model_file=str(spm))
    pieces = [*FIRST, *(processor.id_to_piece(i) for i in range(3, len(processor)))]
    source, target = KINDS[kind]
    config: dict[str, Any] = {"src_lang": source, "tgt_lang": target}
    transformers = theirs("transformers")
    if kind == "m2m100":
        write(directory / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
        rows = len(pieces) + 100 + 8
        write(directory / "tokenizer_config.json", {**config, "tokenizer_class": "M2M100Tokenizer"})
    else:
        rows = len(pieces) + len(CODES) + 1 + 2
        config |= {"additional_special_tokens": CODES, "tokenizer_class": "NllbTokenizer"}
        write(directory / "tokenizer_config.json", config)
        tokenizer = transformers.NllbTokenizer.from_pretrained(directory)
        values = json.loads(tokenizer.backend_tokenizer.to_str())
        ids = {piece: i for i, piece in enumerate([*pieces, *CODES, "<mask>"])}
        values["model"]["vocab"] = ids  # as the converter of transformers 4 had it
        added = [token | {"id": ids[token["content"]]} for token in values["added_tokens"]]
        values["added_tokens"] = sorted(added, key=lambda token: token["id"])
        values["post_processor"] = None
        write(directory / "tokenizer.json", values)
    options = {
        "vocab_size": rows, "d_model": dim, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_ffn_dim": 2 * dim, "decoder_ffn_dim": 2 * dim, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "init_std": 0.1 if updates else 0.3, "dropout": 0.0,
        "attention_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
        "scale_embedding": True, "max_position_embeddings": 200,
    }  # fmt: skip
    torch.manual_seed(0)
    model = transformers.M2M100ForConditionalGeneration(
        transformers.M2M100Config(**options | more)
    ).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)  # biases start at zero, norms at one
    if updates:
        classes = {"nllb": transformers.NllbTokenizer, "m2m100": transformers.M2M100Tokenizer}
        tokenizer = classes[kind].from_pretrained(directory)
        sources, targets = (list(side) for side in zip(*text, strict=True))
        train(model, tokenizer, sources, targets, updates)
    model.save_pretrained(directory)
    ids = {"decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}
    write(directory / "generation_config.json", {"num_beams": 4, "length_penalty": 1.0, **ids})
    return model


def write(path: Path, values: Any) -> None:
    """Write JSON."""
    path.write_text(json.dumps(values), encoding="utf-8")
