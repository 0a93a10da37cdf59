"""Rosendahl et al. (2019), eq. 8-9: relative positions with fixed sinusoids for vectors."""

from typing import Literal

import torch
from torch import Tensor

from nmt.config.check import NonNegativeInt
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.sinusoids import sinusoids
from nmt.encodings.vectors.relative import Relative

Reference = Literal["paper", "returnn"]


class RelativeSinusoidal(Relative):
    """Shaw's encoding with nothing to learn; `reference` says whose sinusoids.

    paper: the first head_dim components of the interleaved PE of the model's width at query
    minus key, so only its highest frequencies. returnn: what the layer of the paper's second
    author computes (RETURNN, 27 June 2019, fixed=True): the tensor2tensor sinusoids of width
    head_dim at clip(key - query) + tau. Sign and offset change nothing that training can see,
    the frequencies do.
    """

    relative = True
    position_type = "integer"
    distances_only = True

    def __init__(
        self,
        dims: Dims,
        tau: NonNegativeInt = 16,
        key: bool = True,
        value: bool = True,
        reference: Reference = "paper",
    ) -> None:
        Encoding.__init__(self, dims)  # without Relative's learned tables
        self.reads_queries_or_keys = key
        if not (key or value):
            raise ValueError("key=false and value=false: nothing would be encoded")
        self.tau = tau
        vectors = _vectors(dims, tau, reference)[None, None]  # [1, 1, 2 tau + 1, head_dim]
        self.register_buffer("key_table", vectors if key else None, persistent=False)
        self.register_buffer("value_table", vectors if value else None, persistent=False)


def _vectors(dims: Dims, tau: int, reference: Reference) -> Tensor:
    """The vector of each distance key - query = -tau..tau: [2 tau + 1, head_dim]."""
    key_minus_query = torch.arange(-tau, tau + 1)
    if reference == "paper":
        return sinusoids(-key_minus_query, dims.dim)[:, : dims.head_dim]
    return sinusoids(key_minus_query + tau, dims.head_dim, "halves", "tensor2tensor")
