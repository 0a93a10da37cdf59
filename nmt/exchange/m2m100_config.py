"""config.json of M2M100 and NLLB models, where it differs from that of Marian models."""

from dataclasses import dataclass
from typing import Any

from nmt.config import Model
from nmt.exchange import marian_config
from nmt.exchange.marian_config import MarianConfig
from nmt.exchange.marian_ids import MarianIds
from nmt.schema import knob

PAD, EOS = 1, 2  # ids of that family
START = 2  # the position of the first token


@dataclass
class M2M100Config(MarianConfig):
    """The keys of config.json that decide on what the model computes."""

    model_type: str = knob("the family of models", choices=("m2m_100",))
    vocab_size: int = knob("rows of the embedding", least=4)
    pad_token_id: int = knob("the id of padding", least=PAD, most=PAD, absent=PAD)
    eos_token_id: int = knob("the id that ends a line", least=EOS, most=EOS, absent=EOS)
    decoder_start_token_id: int = knob("starts the decoder", least=EOS, most=EOS, absent=EOS)
    normalize_before: bool = knob("pre-norm", choices=(True,), absent=True)
    add_final_layer_norm: bool = knob("a norm above the stacks", choices=(True,), absent=True)
    quantization_config: bool = knob("quantised weights", choices=(False,), absent=False)

    def shape(self) -> dict[str, Any]:
        """The keys under `model` of our settings."""
        return super().shape() | {"norm": "pre", "tie": "all"}


def to_config(shape: Model, ids: MarianIds) -> dict[str, Any]:
    """The keys of config.json for a model of ours."""
    values = marian_config.to_config(shape, ids, ids, positions=1024)
    for key in ("decoder_vocab_size", "share_encoder_decoder_embeddings", "normalize_embedding"):
        del values[key]
    return values | {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "bos_token_id": 0,
        "normalize_before": True,
        "add_final_layer_norm": True,
    }
