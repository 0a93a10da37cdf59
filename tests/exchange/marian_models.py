"""Marian models made by transformers, with real SentencePiece models, as OPUS-MT's are stored."""

import json
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor

from nmt.toy import pairs
from tests.encodings.agreement import theirs
from tests.text.test_segmenter_files import spm_model

TOP = ("</s>", "<unk>")
KINDS: dict[str, dict[str, Any]] = {
    "shared swish": {},
    "separate relu": {"activation": "relu", "separate": True},
    "multilingual gelu": {"activation": "gelu", "codes": (">>de<<", ">>fr<<")},
}


def make(
    directory: Path,
    activation: str = "swish",
    separate: bool = False,
    codes: tuple[str, ...] = (),
    pieces: int = 60,
    dim: int = 16,
    updates: int = 0,
) -> Any:
    """Write a model, random but for some updates on the embedded corpus; returns it."""
    directory.mkdir(parents=True)
    text = pairs(300, 4, 14, "marian")
    known = [_spm(directory / f"{name}.spm", [pair[side] for pair in text], pieces)
             for side, name in enumerate(("source", "target"))]  # fmt: skip
    for side, other in (known, known[::-1]):  # transformers wants one id of padding in both
        side += [f"unused{number}" for number in range(len(other) - len(side))]
    both = [*known[0], *known[1]]
    source, target = (
        {
            piece: number
            for number, piece in enumerate([*TOP, *codes, *dict.fromkeys(all_), "<pad>"])
        }
        for all_ in (known if separate else (both, both))
    )
    _write(directory / "vocab.json", source)
    if separate:
        _write(directory / "target_vocab.json", target)
    languages = {"source_lang": "de", "target_lang": "en"}
    _write(directory / "tokenizer_config.json", {**languages, "separate_vocabs": separate})
    transformers = theirs("transformers")
    config = transformers.MarianConfig(
        vocab_size=len(source), decoder_vocab_size=len(target), max_position_embeddings=300,
        encoder_layers=2, decoder_layers=1, d_model=dim, encoder_ffn_dim=2 * dim,
        decoder_ffn_dim=2 * dim, encoder_attention_heads=2, decoder_attention_heads=2,
        activation_function=activation, scale_embedding=True, dropout=0.0,
        init_std=0.1 if updates else 0.3,
        pad_token_id=source["<pad>"], decoder_start_token_id=target["<pad>"], eos_token_id=0,
        share_encoder_decoder_embeddings=not separate,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "embed_positions" not in name:
                p.add_(torch.randn_like(p) * 0.05)  # biases start at zero, norms at one
        model.final_logits_bias.normal_(0, 0.5)
    model.save_pretrained(directory)
    if updates:
        tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
        sources = [" ".join([*codes[-1:], source]) for source, _ in text]
        train(model, tokenizer, sources, [target for _, target in text], updates)
        model.save_pretrained(directory)
    return model


def train(model: Any, tokenizer: Any, sources: list[str], targets: list[str], updates: int) -> None:
    """Make updates by the model's own loss, so that its outputs look like language, and end."""
    optim, batches = torch.optim.Adam(model.parameters(), 0.01), list[Any]()
    for some in (slice(first, first + 32) for first in range(0, 288, 32)):
        batch = tokenizer(
            sources[some], text_target=targets[some], padding=True, return_tensors="pt"
        )
        labels = batch["labels"]
        batch["labels"] = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
        batches.append(batch)
    for update in range(updates):
        optim.zero_grad()
        model(**batches[update % len(batches)]).loss.backward()
        optim.step()


def _spm(path: Path, lines: list[str], pieces: int) -> list[str]:
    """Learn a model as Marian's are; returns its pieces, without the special ones."""
    spm_model(path, lines, vocab_size=pieces, hard_vocab_limit=False)
    processor = SentencePieceProcessor(model_file=str(path))
    in_model = [processor.id_to_piece(i) for i in range(len(processor))]
    return [piece for piece in in_model if piece not in ("<s>", *TOP)]


def _write(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values), encoding="utf-8")
