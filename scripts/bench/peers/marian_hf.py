"""Hugging Face's Marian model, in training and in beam search.

Differs from the bench's own model: layer norm after each sublayer, and the vocabulary projection
runs over padding too.
"""

from pathlib import Path
from typing import Any

import torch
import transformers
from loop import train
from protocol import read_job, serve
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

PAD, BOS, EOS, UNK = 0, 1, 2, 3
FACTS = {"version": transformers.__version__, "differs": "layer norm after each sublayer"}


def random_model(job: dict[str, Any]) -> MarianMTModel:
    size = job["model"]
    torch.manual_seed(1)
    return MarianMTModel(
        MarianConfig(
            vocab_size=job["vocab"],
            decoder_vocab_size=job["vocab"],
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
            max_position_embeddings=job["longest"],
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )


def training(job: dict[str, Any]) -> None:
    model = random_model(job)
    model.set_attn_implementation(job["options"]["attention"])

    def logits(source: Tensor, target: Tensor) -> Tensor:
        mask = source.ne(PAD).long()
        return model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits

    train(job, model, logits, **FACTS)


def decoding(job: dict[str, Any]) -> None:
    """Answer rounds of beam search, of exactly `job["steps"]` tokens for each sentence."""
    where, dtype = Path(job["converted"]), getattr(torch, job["precision"])
    if not where.exists():
        random_model(job).to(dtype).save_pretrained(where)
    model = MarianMTModel.from_pretrained(where, dtype=dtype).to(job["device"]).eval()
    model.set_attn_implementation(job["options"]["attention"])
    rows = sorted(job["sources"], key=len, reverse=True)
    serve(lambda: {"units": search(model, rows, job)}, **FACTS)


@torch.inference_mode()
def search(model: MarianMTModel, rows: list[list[int]], job: dict[str, Any]) -> int:
    """Translate, longest sentences first; returns how many tokens came."""
    total, sentences = 0, job["options"]["sentences"]
    for start in range(0, len(rows), sentences):
        some = rows[start : start + sentences]
        width = max(map(len, some))
        ids = torch.tensor([row + [PAD] * (width - len(row)) for row in some])
        ids = ids.to(job["device"])
        hypotheses = model.generate(
            input_ids=ids,
            attention_mask=ids.ne(PAD).long(),
            num_beams=job["beam"],
            do_sample=False,
            max_new_tokens=job["steps"],
            min_new_tokens=job["steps"],
            length_penalty=1.0,
            bad_words_ids=[[PAD], [BOS], [UNK]],
        )
        total += hypotheses[:, 1:].numel()
    return total


if __name__ == "__main__":
    job = read_job()
    (training if job["part"] == "training" else decoding)(job)
