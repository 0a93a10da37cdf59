"""The encoder-decoder Transformer (Vaswani et al. 2017), with positions left to its encodings."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import Model
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context, causal
from nmt.model.attention import Cache
from nmt.model.layers import DecoderLayer, EncoderLayer

PAD = 0  # the id that fills rows up on the right


class State:
    """What a decoder remembers between steps; rows are hypotheses."""

    def __init__(self, source: Tensor, allowed: Tensor, layers: int) -> None:
        self.source = source  # [sentence, source, dim], or of rows after a reorder
        self.allowed = allowed  # [sentence, 1, 1, source]
        self.length = 0  # tokens decoded so far
        self.own = [Cache() for _ in range(layers)]
        self.cross = [Cache() for _ in range(layers)]
        self.recurrent: dict[str, Tensor] = {}  # of encodings; rows first
        self._origin = torch.arange(len(source), device=source.device)  # [rows] first row of each

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes old row rows[i]: repeats, reorders or drops rows.

        Rows that merely swap with another hypothesis of the same sentence leave the source alone.
        """
        for cache in self.own:
            cache.reorder(rows)
        self.recurrent = {name: t[rows] for name, t in self.recurrent.items()}
        origin = self._origin[rows]
        if origin.shape != self._origin.shape or not torch.equal(origin, self._origin):
            self.source, self.allowed = self.source[rows], self.allowed[rows]
            for cache in self.cross:
                cache.reorder(rows)
        self._origin = origin


class Transformer(nn.Module):
    """Maps source ids and target prefixes to logits over the target vocabulary."""

    def __init__(
        self,
        config: Model,
        source_size: int,
        target_size: int,
        encodings: Callable[[Dims], list[Encoding]],
    ) -> None:
        """`encodings` makes those of one site; raises ValueError for impossible sizes."""
        super().__init__()
        self.scale = config.dim**0.5
        self.dropout = config.dropout
        self.source_embedding = nn.Embedding(source_size, config.dim)
        self.target_embedding = nn.Embedding(target_size, config.dim)
        self.output = nn.Linear(config.dim, target_size)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        final = config.norm == "pre"  # after post-norm layers nothing is left to normalise
        self.encoder_norm = nn.LayerNorm(config.dim) if final else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.dim) if final else nn.Identity()
        self._initialise()

        def site(name: str, layers: int) -> Encodings:
            dims = Dims(name, layers, config.heads, config.dim, config.dim // config.heads)
            return Encodings(encodings(dims))

        self.encoder_encodings = site("encoder", config.encoder_layers)
        self.decoder_encodings = site("decoder", config.decoder_layers)
        self.cross_encodings = site("cross", config.decoder_layers)
        self._tie(config.tie)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=1 / self.scale)

    def _tie(self, tie: str) -> None:
        """Make embeddings one matrix (Press and Wolf 2017)."""
        if tie in ("target", "all"):
            self.output.weight = self.target_embedding.weight
        if tie == "all":
            if self.source_embedding.weight.shape != self.target_embedding.weight.shape:
                raise ValueError("tie=all needs one vocabulary for both sides")
            self.source_embedding.weight = self.target_embedding.weight

    @property
    def source_limit(self) -> int | None:
        """The longest source, eos included, that the encodings can hold; None: any."""
        return self.encoder_encodings.limit

    @property
    def target_limit(self) -> int | None:
        """The longest target, bos included, that the encodings can hold; None: any."""
        return self.decoder_encodings.limit

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [batch, target, vocab] of the token after each prefix of target."""
        return self.logits(self.hidden(source, target))

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., dim] -> [..., vocab]."""
        return self.output(hidden)

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:
        """States [batch, target, dim] for source ids [batch, source], target [batch, target].

        Rows are padded on the right; target starts with bos and has no eos.
        """
        memory, allowed = self.encode(source)
        at = torch.arange(target.shape[1], device=target.device)[None]
        own = Context(
            "decoder", at, at, at, causal(at.shape[1], at.shape[1], at.device), None, None,
            self.training,
        )  # fmt: skip
        there = torch.arange(source.shape[1], device=source.device)[None]
        cross = Context("cross", at, there, there, allowed, None, None, self.training)
        return self._decode(target, memory, own, cross, None)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """States [batch, source, dim] and the mask [batch, 1, 1, source] of real tokens."""
        real = source != PAD
        at = torch.arange(source.shape[1], device=source.device)[None]
        allowed = real[:, None, None, :]
        context = Context("encoder", at, at, at, allowed, real.sum(1), None, self.training)
        x = self._embed(self.source_embedding, source, self.encoder_encodings, context)
        for number, layer in enumerate(self.encoder):
            x = layer(x, number, self.encoder_encodings, context)
        return self.encoder_encodings.readout(self.encoder_norm(x), context), allowed

    def start(self, source: Tensor) -> State:
        """Read source ids [rows, source], to decode one target for each row."""
        memory, allowed = self.encode(source)
        return State(memory, allowed, len(self.decoder))

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Logits [rows, vocab] of the token after `tokens` [rows]; advances the state."""
        return self.logits(self.advance(tokens[:, None], state)[:, -1])

    def advance(self, tokens: Tensor, state: State) -> Tensor:
        """States [rows, n, dim] of the next n tokens [rows, n]; advances the state."""
        n, device = tokens.shape[1], tokens.device
        keys = torch.arange(state.length + n, device=device)[None]
        new = keys[:, state.length :]
        mask = causal(n, keys.shape[1], device) if n > 1 else None
        own = Context("decoder", new, keys, new, mask, None, state.recurrent)
        there = torch.arange(state.source.shape[1], device=device)[None]
        fresh = there if not state.cross[0].length else there[:, :0]
        cross = Context("cross", new, there, fresh, state.allowed, None, state.recurrent)
        state.length += n
        return self._decode(tokens, state.source, own, cross, state)

    def _embed(
        self, table: nn.Module, ids: Tensor, encodings: Encodings, context: Context
    ) -> Tensor:
        x = encodings.embed(table(ids) * self.scale, context)
        return F.dropout(x, self.dropout, self.training)

    def _decode(
        self, target: Tensor, memory: Tensor, own: Context, cross: Context, state: State | None
    ) -> Tensor:
        x = self._embed(self.target_embedding, target, self.decoder_encodings, own)
        for number, layer in enumerate(self.decoder):
            caches = (None, None) if state is None else (state.own[number], state.cross[number])
            x = layer(
                x,
                memory,
                number,
                (self.decoder_encodings, own, caches[0]),
                (self.cross_encodings, cross, caches[1]),
            )
        return self.decoder_encodings.readout(self.decoder_norm(x), own)
