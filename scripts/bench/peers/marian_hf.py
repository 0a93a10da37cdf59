"""Hugging Face's Marian model, in training.

Differs from the bench's own model: layer norm after each sublayer, and the vocabulary projection
runs over padding too.
"""

from typing import Any

import torch
import transformers
from loop import train
from protocol import read_job
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


if __name__ == "__main__":
    training(read_job())
