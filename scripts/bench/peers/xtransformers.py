"""x-transformers (lucidrains) in training: an encoder-decoder of the same size, its own attention.

Differs from the bench's own model: no biases in attention, learned positions, and the vocabulary
projection runs over padding too.
"""

import importlib.metadata
from typing import Any

import torch
from loop import train
from protocol import read_job
from torch import Tensor, nn
from x_transformers import XTransformer


def main() -> None:
    job = read_job()
    torch.manual_seed(1)
    size = job["model"]
    stack: dict[str, Any] = {
        "num_tokens": job["vocab"],
        "max_seq_len": job["longest"],
        "heads": size["heads"],
        "emb_dropout": size["dropout"],
        "attn_dim_head": size["dim"] // size["heads"],
        "attn_flash": job["options"]["attention"] == "sdpa",
        "attn_dropout": size["attention_dropout"],
        "attn_sublayer_dropout": size["dropout"],
        "ff_mult": size["feedforward_dim"] / size["dim"],
        "ff_custom_activation": nn.ReLU(),
        "ff_dropout": size["feedforward_dropout"],
        "ff_sublayer_dropout": size["dropout"],
    }
    model = XTransformer(
        dim=size["dim"],
        enc_depth=size["encoder_layers"],
        dec_depth=size["decoder_layers"],
        dec_cross_attn_sublayer_dropout=size["dropout"],
        **{f"{site}_{key}": value for site in ("enc", "dec") for key, value in stack.items()},
    )

    def logits(source: Tensor, target: Tensor) -> Tensor:
        real = source != 0
        memory = model.encoder(source, mask=real, return_embeddings=True)
        return model.decoder.net(target, context=memory, context_mask=real)

    version = importlib.metadata.version("x-transformers")
    differs = "no biases in attention, learned positions"
    train(job, model, logits, version=version, differs=differs)


if __name__ == "__main__":
    main()
