"""x-transformers (lucidrains) in training: an encoder-decoder of the same size, its own attention.

Differs from the bench's own model: no biases in attention, learned positions, and the vocabulary
projection runs over padding too.
"""

import importlib.metadata
from typing import Any

import torch
from loop import train
from protocol import job
from torch import Tensor, nn
from x_transformers import XTransformer

DIFFERS = "no biases in attention, learned positions"


def main() -> None:
    """Answer rounds."""
    asked = job()
    torch.set_num_threads(asked["threads"])
    torch.manual_seed(1)
    size = asked["model"]
    common: dict[str, Any] = {
        "num_tokens": asked["vocab"],
        "max_seq_len": asked["longest"],
        "heads": size["heads"],
        "emb_dropout": size["dropout"],
        "attn_dim_head": size["dim"] // size["heads"],
        "attn_flash": asked["options"]["attention"] == "sdpa",
        "attn_dropout": size["attention_dropout"],
        "attn_sublayer_dropout": size["dropout"],
        "ff_mult": size["feedforward_dim"] / size["dim"],
        "ff_custom_activation": nn.ReLU(),
        "ff_dropout": size["feedforward_dropout"],
        "ff_sublayer_dropout": size["dropout"],
    }
    encoder = {f"enc_{key}": value for key, value in common.items()}
    decoder = {f"dec_{key}": value for key, value in common.items()}
    model = XTransformer(
        dim=size["dim"],
        enc_depth=size["encoder_layers"],
        dec_depth=size["decoder_layers"],
        dec_cross_attn_sublayer_dropout=size["dropout"],
        **encoder,
        **decoder,
    )

    def logits(source: Tensor, target: Tensor) -> Tensor:
        real = source != 0
        memory = model.encoder(source, mask=real, return_embeddings=True)
        return model.decoder.net(target, context=memory, context_mask=real)

    train(
        asked,
        model,
        logits,
        version=importlib.metadata.version("x-transformers"),
        differs=DIFFERS,
    )


if __name__ == "__main__":
    main()
