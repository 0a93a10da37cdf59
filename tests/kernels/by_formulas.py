"""What launches Triton's kernels of attention, as formulas, for where Triton is not installed."""

import torch
from torch import Tensor

from nmt.kernels.relative import STEPS, _Call, _Inputs


def _weights(inputs: _Inputs, call: _Call) -> tuple[Tensor, Tensor, Tensor]:
    """[batch, heads, query, key] each: column of t, probabilities, factors of dropout."""
    q, k, _, t, allowed, seed = inputs
    distance = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
    index = (distance.clamp(-call.tau, call.tau) + call.tau).expand(*q.shape[:2], -1, -1)
    s = (q @ k.mT).float()
    s = (s if t is None else s + t.gather(3, index)) * call.scale
    s = s if allowed is None else s.masked_fill(~allowed, -torch.inf)
    s = s.masked_fill(distance > 0, -torch.inf) if call.causal else s
    draws = torch.zeros(s.shape)
    if call.dropped:
        draws = torch.rand(s.shape, generator=torch.Generator().manual_seed(int(seed)))
    kept = (draws * STEPS >= call.dropped) * (STEPS / (STEPS - call.dropped))
    return index, s.softmax(-1).nan_to_num(), kept


def forward(inputs: _Inputs, values: bool, call: _Call) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `relative._forward`; without lse, which formulas do not need."""
    index, p, kept = _weights(inputs, call)
    p = (p * kept).to(inputs.v.dtype)
    lse = p.new_zeros(p.shape[:3], dtype=torch.float32)
    return _by_token(p @ inputs.v), lse, _sums(p, index, call) if values else None


def backward(
    inputs: _Inputs, u: Tensor | None, g: Tensor, o: Tensor, lse: Tensor, call: _Call
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """As `relative._backward`."""
    index, p, kept = _weights(inputs, call)
    by_p = g @ inputs.v.mT
    by_p = (by_p if u is None else by_p + u.gather(3, index)) * kept
    by_s = (p * (by_p - (p * by_p).sum(-1, keepdim=True)) * call.scale).to(g.dtype)
    by_v = (p * kept).to(g.dtype).mT @ g
    by_t = None if inputs.t is None else _sums(by_s, index, call)
    return _by_token(by_s @ inputs.k), _by_token(by_s.mT @ inputs.q), _by_token(by_v), by_t


def _sums(x: Tensor, index: Tensor, call: _Call) -> Tensor:
    return _by_token(x.new_zeros(*x.shape[:3], call.width).scatter_add(3, index, x))


def _by_token(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)
