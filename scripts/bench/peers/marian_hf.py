"""Hugging Face's Marian model, in training and in beam search.

Differs from the bench's own model: layer norm after each sublayer, and the vocabulary projection
runs over padding too.
"""

import time
from pathlib import Path
from typing import Any

import torch
import transformers
from loop import train
from protocol import Line, job
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

PAD, BOS, EOS, UNK = 0, 1, 2, 3
DIFFERS = "layer norm after each sublayer"


def made(asked: dict[str, Any]) -> MarianMTModel:
    """A model of the size that is asked for, with random weights."""
    size = asked["model"]
    torch.manual_seed(1)
    return MarianMTModel(
        MarianConfig(
            vocab_size=asked["vocab"],
            decoder_vocab_size=asked["vocab"],
            share_encoder_decoder_embeddings=False,
            tie_word_embeddings=False,
            d_model=size["dim"],
            encoder_layers=size["encoder_layers"],
            decoder_layers=size["decoder_layers"],
            encoder_attention_heads=size["heads"],
            decoder_attention_heads=size["heads"],
            encoder_ffn_dim=size["feedforward_dim"],
            decoder_ffn_dim=size["feedforward_dim"],
            activation_function="relu",
            dropout=size["dropout"],
            attention_dropout=size["attention_dropout"],
            activation_dropout=size["feedforward_dropout"],
            scale_embedding=True,
            max_position_embeddings=asked["longest"],
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )


def training(asked: dict[str, Any]) -> None:
    """Answer rounds of updates."""
    model = made(asked)
    model.set_attn_implementation(asked["options"]["attention"])

    def logits(source: Tensor, target: Tensor) -> Tensor:
        mask = source.ne(PAD).long()
        return model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits

    train(asked, model, logits, version=transformers.__version__, differs=DIFFERS)


def decoding(asked: dict[str, Any]) -> None:
    """Answer rounds of beam search, of exactly `asked["steps"]` tokens for each sentence."""
    where = Path(asked["converted"])
    if not where.exists():
        made(asked).to(getattr(torch, asked["precision"])).save_pretrained(where)
    model = MarianMTModel.from_pretrained(where, dtype=getattr(torch, asked["precision"]))
    model = model.to(asked["device"]).eval()
    model.set_attn_implementation(asked["options"]["attention"])
    rows = sorted(asked["sources"], key=len, reverse=True)
    if asked["once"]:
        search(model, rows, asked)
        return
    line = Line()
    line.ready(
        version=transformers.__version__, torch=torch.__version__, differs=DIFFERS,
        threads=torch.get_num_threads(),
    )  # fmt: skip
    while line.asked():
        began = time.perf_counter()
        tokens = search(model, rows, asked)
        line.answer(tokens, time.perf_counter() - began)


@torch.inference_mode()
def search(model: MarianMTModel, rows: list[list[int]], asked: dict[str, Any]) -> int:
    """Translate, longest sentences first; returns how many tokens came."""
    total, sentences = 0, asked["options"]["sentences"]
    for start in range(0, len(rows), sentences):
        some = rows[start : start + sentences]
        width = max(map(len, some))
        ids = torch.tensor([row + [PAD] * (width - len(row)) for row in some])
        ids = ids.to(asked["device"])
        found = model.generate(
            input_ids=ids,
            attention_mask=ids.ne(PAD).long(),
            num_beams=asked["beam"],
            do_sample=False,
            max_new_tokens=asked["steps"],
            min_new_tokens=asked["steps"],
            length_penalty=1.0,
            bad_words_ids=[[PAD], [BOS], [UNK]],
        )
        total += found[:, 1:].numel()
    return total


def main() -> None:
    """Answer rounds."""
    asked = job()
    torch.set_num_threads(asked["threads"])
    if asked["part"] == "training":
        training(asked)
    else:
        decoding(asked)


if __name__ == "__main__":
    main()
