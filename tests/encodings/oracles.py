"""Encodings against packages by other people (extra: oracles). The table: make oracles.

Precision is float64 where the package computes in it, else float32. Exports compare whole models
with CTranslate2 (tests/exchange); loops over the papers' formulas are in the other files here.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from nmt.encodings.base import Encoding
from nmt.encodings.biases.alibi import Alibi
from nmt.encodings.biases.fox import Fox
from nmt.encodings.biases.t5 import T5
from nmt.encodings.context import causal
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.input.axial import Axial
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.rotary.xpos import Xpos
from nmt.encodings.rotary.yarn import Yarn
from nmt.encodings.site import SiteEncodings
from nmt.encodings.vectors.cope import Cope
from nmt.encodings.vectors.deberta import Deberta
from nmt.encodings.vectors.relative import Relative
from nmt.encodings.vectors.transformer_xl import TransformerXl
from tests.encodings.agreement import Agreement, Pair, table
from tests.encodings.attending import attend, dims, pass_over, qkv, randomise

HF = "transformers.models"


def flat(*tensors: Tensor) -> Tensor:
    """Several results as one."""
    return torch.cat([t.detach().flatten() for t in tensors])


def embedded(e: Encoding, n: int) -> Tensor:
    """What is added to n embeddings: [n, dim]."""
    return SiteEncodings([e]).embed(torch.zeros(1, n, e.dims.dim), pass_over(n, rows=1))[0]


def biases(e: Encoding, n: int) -> Tensor:
    """What is added to the scores of n tokens: [heads, n, n]."""
    bias = SiteEncodings([e]).bias(0, pass_over(n, e.dims.site))
    assert bias is not None
    return bias[0]


def turned(e: Rotary, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys [batch, heads, n, head_dim] at their positions."""
    context = pass_over(q.shape[2], e.dims.site)
    x, y = (t.transpose(1, 2).flatten(2) for t in (q, k))
    return SiteEncodings([e]).project(lambda *_: (q, k, k), x, y, y, 0, context)[:2]


# --- added to embeddings


def sinusoids(layout: Any, denominator: Any, make: Callable[[int, int], Tensor]) -> Pair:
    e = Absolute(dims(head_dim=16), layout, denominator)
    return embedded(e, 60), make(60, 32)


def xlm(n: int, width: int) -> Tensor:
    module = import_module(f"{HF}.xlm.modeling_xlm")
    return module.create_sinusoidal_embeddings(n, width, torch.empty(n, width))


def marian(n: int, width: int) -> Tensor:
    module = import_module(f"{HF}.marian.modeling_marian")
    return module.MarianSinusoidalPositionalEmbedding(n, width).create_weight()


def m2m100(n: int, width: int) -> Tensor:
    module = import_module(f"{HF}.m2m_100.modeling_m2m_100")
    return module.M2M100SinusoidalPositionalEmbedding.get_embedding(n, width)


def axial() -> Pair:
    config = import_module("transformers").ReformerConfig(
        axial_pos_shape=(7, 5), axial_pos_embds_dim=(6, 10), hidden_size=16
    )
    reformer = (
        import_module(f"{HF}.reformer.modeling_reformer").AxialPositionEmbeddings(config).eval()
    )
    e = randomise(Axial(dims(head_dim=8), t1=7, t2=5, first=6)).float()
    with torch.no_grad():
        reformer.weights[0][:, 0].copy_(e.segments)
        reformer.weights[1][0].copy_(e.places)
        wanted = reformer(torch.arange(17)[None])[0]
    return embedded(e, 17), wanted


# --- biases


def t5_buckets() -> Pair:
    """Each bucket's bias is its number, so that biases are buckets."""
    t5 = import_module(f"{HF}.t5.modeling_t5").T5Attention
    numbered, wanted = [], []
    for site in ("encoder", "decoder"):
        for buckets, far in ((32, 128), (16, 64), (8, 20)):
            e = T5(dims(site), buckets, far)
            with torch.no_grad():
                e.weight.copy_(torch.arange(buckets).expand_as(e.weight))
            numbered.append(biases(e, 401)[0])
            delta = torch.arange(401)[None] - torch.arange(401)[:, None]
            wanted.append(t5._relative_position_bucket(delta, site == "encoder", buckets, far))
    return torch.stack(numbered).long(), torch.stack(wanted)


def fox() -> Pair:
    """Below the diagonal: the package has gates of all pairs, with a mask to follow."""
    package = (
        import_module("x_transformers.x_transformers")
        .DataDependentAlibi(8, 2, causal=True)
        .double()
    )
    e = randomise(Fox(dims("decoder")))
    x = qkv(9, e.dims)[0].transpose(1, 2).flatten(2)
    seen = causal(9, 9, x.device)
    with torch.no_grad():
        package.to_forget_gates[0].weight.copy_(e.weight[1])
        package.to_forget_gates[0].bias.copy_(e.gate_bias[1])
        wanted = package(x) * seen

    context = pass_over(9, "decoder")
    e.project(lambda *_: (x, x, x), x, x, x, 1, context)
    return e.bias(1, context) * seen, wanted


def alibi() -> Pair:
    package = import_module("x_transformers.x_transformers")
    entries = [Alibi(dims(heads=heads)) for heads in range(1, 34)]
    wanted = [package.AlibiPositionalBias(heads)(9, 9) for heads in range(1, 34)]
    return flat(*(biases(e, 9) for e in entries)), flat(*wanted)


# --- turned queries and keys


def rotary(dim: int = 8, rotary: Any = None, **options: float) -> Pair:
    """RotaryEmbedding of rotary-embedding-torch turns the first `dim` of 8 components."""
    package = import_module("rotary_embedding_torch").RotaryEmbedding(dim, **options)
    e = Rotary(dims(head_dim=8), **(rotary or {}))
    q, k = (t.float() for t in qkv(50, e.dims)[:2])
    wanted = [package.rotate_queries_or_keys(t) for t in (q, k)]
    return flat(*turned(e, q, k)), flat(*wanted)


def rotary_halves() -> Pair:
    llama = import_module(f"{HF}.llama.modeling_llama")
    config = import_module("transformers").LlamaConfig(hidden_size=16, num_attention_heads=2)
    e = Rotary(dims(head_dim=8), layout="halves")
    q, k = (t.float() for t in qkv(50, e.dims)[:2])
    waves = llama.LlamaRotaryEmbedding(config)(q, torch.arange(50)[None])
    wanted = llama.apply_rotary_pos_emb(q, k, *waves)
    return flat(*turned(e, q, k)), flat(*wanted)


def yarn(original: int, factor: float) -> Pair:
    llama = import_module(f"{HF}.llama.modeling_llama")
    rope = {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": factor,
        "original_max_position_embeddings": original,
    }  # fmt: skip
    config = import_module("transformers").LlamaConfig(
        hidden_size=64, num_attention_heads=2, rope_parameters=rope
    )
    e = Yarn(dims(head_dim=32), layout="halves", factor=factor, original=original)
    q, k = (t.float() for t in qkv(50, e.dims)[:2])
    waves = llama.LlamaRotaryEmbedding(config)(q, torch.arange(50)[None])
    wanted = llama.apply_rotary_pos_emb(q, k, *waves)
    return flat(*turned(e, q, k)), flat(*wanted)


def turned_scores(decay: bool) -> Pair:
    package = import_module("x_transformers.x_transformers")
    sizes = dims("decoder", head_dim=8)
    e = Xpos(sizes) if decay else Rotary(sizes)
    q, k = (t.float() for t in qkv(50, sizes)[:2])
    w, scale = package.RotaryEmbedding(8, use_xpos=decay).forward_from_seq_len(50)
    x = package.apply_rotary_pos_emb(q, w, scale)
    y = package.apply_rotary_pos_emb(k, w, 1 / scale)

    a, b = turned(e, q, k)
    return a @ b.mT, x @ y.mT


# --- terms of the score


def cope() -> Pair:
    e = randomise(Cope(dims("decoder"), counts=4))
    q, k, v = qkv(9, e.dims)
    seen = causal(9, 9, q.device)
    package = import_module("x_transformers.x_transformers").CoPE(4, 2, 4).double()
    logits = (q @ k.mT / 2).masked_fill(~seen, -torch.finfo(torch.float64).max)
    wanted = []
    with torch.no_grad():
        for layer in range(2):
            package.pos_emb.copy_(e.weight[layer, 0])
            wanted.append((logits + package(q, logits)).masked_fill(~seen, 0))
    context = pass_over(9, "decoder")
    scores = [attend(e, q, k, v, context, n)[0] * seen for n in range(2)]
    return torch.stack(scores), torch.stack(wanted)


def deberta() -> Pair:
    """With fewer distances than tokens, and with more; their scale is rounded to float32."""
    (few, wanted_few), (many, wanted_many) = (_deberta(reach) for reach in (3, 32))
    return flat(few, many), flat(wanted_few, wanted_many)


def _deberta(reach: int) -> Pair:
    config = import_module("transformers").DebertaV2Config(
        hidden_size=8, num_attention_heads=2, relative_attention=True, position_buckets=-1,
        max_relative_positions=reach, share_att_key=False, pos_att_type=["c2p", "p2c"],
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    package = import_module(f"{HF}.deberta_v2.modeling_deberta_v2").DisentangledSelfAttention(
        config
    )
    package = randomise(package).eval()
    e = randomise(Deberta(dims(), reach))
    with torch.no_grad():
        package.pos_key_proj.weight.copy_(e.w_kr[1, 0])
        package.pos_query_proj.weight.copy_(e.w_qr[1, 0])
        for p in (package.pos_key_proj, package.pos_query_proj):
            p.bias.zero_()
        x = torch.randn(2, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        mask = torch.ones(2, 1, 9, 9, dtype=torch.bool)
        wanted, p = package(x, mask, output_attentions=True, rel_embeddings=e.p)
        q, k, v = (
            f(x).unflatten(-1, (2, 4)).transpose(1, 2)
            for f in (package.query_proj, package.key_proj, package.value_proj)
        )

    _, weights, out = attend(e, q, k, v, pass_over(9), 1)
    return flat(weights, out.transpose(1, 2)), flat(p, wanted)


def transformer_xl() -> Pair:
    """XLNet's bidirectional core; its distances run from n down to 1 - n."""
    xlnet = import_module(f"{HF}.xlnet.modeling_xlnet")
    config = import_module("transformers").XLNetConfig(d_model=8, n_head=2, dropout=0.0)
    package = xlnet.XLNetRelativeAttention(config).double().eval()
    e = randomise(TransformerXl(dims()))
    q, k, v = qkv(9, e.dims)
    distances = torch.arange(9, -9, -1, dtype=torch.float64)
    w = 10000 ** -(torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    r = xlnet.XLNetModel.positional_embedding(distances, w, 2) @ e.w_r[1, 0].mT  # [18, 2, 8]
    with torch.no_grad():
        package.r_w_bias.copy_(e.u[0, :, 0])
        package.r_r_bias.copy_(e.v[0, :, 0])
        wanted, p = package.rel_attn_core(
            *(t.permute(2, 0, 1, 3) for t in (q, k, v)),
            r.unflatten(-1, (2, 4)),
            output_attentions=True,
        )

    _, weights, out = attend(e, q, k, v, pass_over(9), 1)
    return flat(weights, out), flat(p.permute(2, 3, 0, 1), wanted.permute(1, 2, 0, 3))


def relative_key() -> Pair:
    config = import_module("transformers").Wav2Vec2BertConfig(
        hidden_size=8, num_attention_heads=2, position_embeddings_type="relative_key",
        left_max_position_embeddings=3, right_max_position_embeddings=3,
        attention_dropout=0.0, attn_implementation="eager",
    )  # fmt: skip
    module = import_module(f"{HF}.wav2vec2_bert.modeling_wav2vec2_bert")
    package = randomise(module.Wav2Vec2BertSelfAttention(config)).eval()
    package.linear_out = nn.Identity()
    e = randomise(Relative(dims(), tau=3, value=False))
    x = torch.randn(2, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    q, k, v = (
        f(x).unflatten(-1, (2, 4)).transpose(1, 2)
        for f in (package.linear_q, package.linear_k, package.linear_v)
    )
    wanted = []
    with torch.no_grad():
        for table in e.key_table[:, 0]:
            package.distance_embedding.weight.copy_(table)
            wanted.append(package(x)[0])

    outs = [attend(e, q, k, v, pass_over(9), layer)[2] for layer in range(2)]
    return torch.stack([out.transpose(1, 2).flatten(2) for out in outs]), torch.stack(wanted)


RET = "rotary-embedding-torch"
AGREEMENTS = [
    Agreement("absolute", "transformers", "XLM: the first 60 vectors",
              partial(sinusoids, "interleaved", "paper", xlm)),
    Agreement("absolute layout=halves", "transformers", "Marian: the first 60 vectors",
              partial(sinusoids, "halves", "paper", marian)),
    Agreement("absolute layout=halves denominator=tensor2tensor", "transformers",
              "M2M100: the first 60 vectors",
              partial(sinusoids, "halves", "tensor2tensor", m2m100), 1e-5),
    Agreement("axial", "transformers", "Reformer: vectors", axial),
    Agreement("t5", "transformers", "T5: buckets of distances -400 to 400, three sizes, both sides",
              t5_buckets),
    Agreement("alibi", "x-transformers", "biases of 1 to 33 heads", alibi, 1e-6),
    Agreement("fox", "x-transformers", "biases of the decoder", fox, 1e-12),
    Agreement("rotary", RET, "queries and keys", rotary, 2e-6),
    Agreement("rotary partial=0.5", RET, "queries and keys",
              partial(rotary, 4, {"partial": 0.5}), 2e-6),
    Agreement("rotary scaling=linear factor=4", RET, "queries and keys",
              partial(rotary, 8, {"scaling": "linear", "factor": 4.0}, interpolate_factor=4.0),
              2e-6),
    Agreement("rotary scaling=ntk factor=8", RET, "queries and keys",
              partial(rotary, 8, {"scaling": "ntk", "factor": 8.0}, theta_rescale_factor=8.0),
              2e-6),
    Agreement("rotary layout=halves", "transformers", "Llama: queries and keys", rotary_halves,
              2e-6),
    Agreement("yarn layout=halves", "transformers", "Llama: queries and keys",
              partial(yarn, 64, 4.0), 5e-6),
    Agreement("yarn layout=halves original=2048 factor=16", "transformers",
              "Llama: queries and keys", partial(yarn, 2048, 16.0), 5e-6),
    Agreement("rotary", "x-transformers", "scores", partial(turned_scores, False), 2e-5),
    Agreement("xpos", "x-transformers", "scores", partial(turned_scores, True), 2e-5),
    Agreement("cope", "x-transformers", "scores of two layers", cope, 1e-12),
    Agreement("deberta", "transformers", "DeBERTa-v2: probabilities and outputs, k = 3 and 32",
              deberta, 1e-6),
    Agreement("transformer_xl", "transformers", "XLNet: probabilities and outputs",
              transformer_xl, 1e-12),
    Agreement("relative_key", "transformers", "Wav2Vec2-BERT: outputs of two layers",
              relative_key, 1e-12),
]  # fmt: skip


def main() -> int:
    """Print the table; 1 where a bound is broken."""
    text, agree = table(AGREEMENTS)
    sys.stdout.write(text)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
