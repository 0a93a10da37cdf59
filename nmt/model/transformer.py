"""The encoder-decoder Transformer (Vaswani et al. 2017), with positions left to its encodings."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt.config.settings import Model
from nmt.encodings.base import Dims, Encoding, common_ranges, least
from nmt.encodings.context import Context, causal, cross_step, decoding_step, whole
from nmt.encodings.site import SiteEncodings, unread_projections
from nmt.model.cache import State
from nmt.model.layers import Stack, dropout
from nmt.system.products import Linear, rounded
from nmt.text.vocab import BOS, EOS, PAD


class Limits(NamedTuple):
    """The longest sequences; None: any."""

    source: int | None  # tokens, eos included
    target: int | None  # tokens, bos included


class Transformer(nn.Module):
    """Maps source ids and target prefixes to logits over the target vocabulary."""

    def __init__(
        self,
        config: Model,
        source_size: int,
        target_size: int,
        make_encodings: Callable[[Dims], list[Encoding]],
    ) -> None:
        """`make_encodings` makes those of one site; raises ValueError for impossible sizes."""
        super().__init__()
        self.embedding_scale = config.dim**0.5
        self.dropout = config.dropout
        self.source_embedding = nn.Embedding(source_size, config.dim)
        self.target_embedding = nn.Embedding(target_size, config.dim)
        self.output = Linear(config.dim, target_size)
        self.encoder = Stack(config, config.encoder_layers, decoder=False)
        self.decoder = Stack(config, config.decoder_layers, decoder=True)
        self.source_eos, self.target_bos = config.source_eos, config.target_bos
        self.source_language: int | None = None  # an id before each source
        self.target_language: int | None = None  # an id after bos, which nothing predicts
        self._initialise()

        def site(name: str, layers: int, vocab: int) -> SiteEncodings:
            sizes = (config.heads, config.dim, config.dim // config.heads, vocab)
            return SiteEncodings(make_encodings(Dims(name, layers, *sizes)))

        self.encoder_encodings = site("encoder", config.encoder_layers, source_size)
        self.decoder_encodings = site("decoder", config.decoder_layers, target_size)
        self.cross_encodings = site("cross", config.decoder_layers, target_size)
        self._drop_unread_projections()
        self.streams = self._streams(config)
        self._tie(config.tie)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=1 / self.embedding_scale)

    def _drop_unread_projections(self) -> None:
        """Leave out projections that encodings do not use: they would never get a gradient.

        They are drawn and then dropped, so that a seed initialises the rest of the model alike.
        """
        parts = ((self.encoder, "attention", self.encoder_encodings),
                 (self.decoder, "attention", self.decoder_encodings),
                 (self.decoder, "cross", self.cross_encodings))  # fmt: skip
        for stack, name, encodings in parts:
            unread = unread_projections([*encodings])
            for projection in unread if all(e.projects_keys for e in encodings) else {"key"}:
                for layer in stack.layers:
                    setattr(getattr(layer, name), projection, nn.Identity())

    def _tie(self, tie: str) -> None:
        """Make embeddings one matrix (Press and Wolf 2017)."""
        if tie in ("target", "all"):
            self.output.weight = self.target_embedding.weight
        if tie == "all":
            if self.source_embedding.weight.shape != self.target_embedding.weight.shape:
                raise ValueError("tie=all needs one vocabulary for both sides")
            self.source_embedding.weight = self.target_embedding.weight

    def _streams(self, config: Model) -> int:
        """Rows for each sentence; ValueError unless all parts agree."""
        streams = {max((e.streams for e in site), default=1) for site in self.sites.values()}
        if len(streams) > 1:
            raise ValueError("encoding: complex embeddings need where=[encoder,decoder,cross]")
        if config.feedforward == "complex" and streams == {1}:
            raise ValueError("feedforward=complex: needs encoding=complex_order")
        return streams.pop()

    @property
    def sites(self) -> dict[str, SiteEncodings]:
        """The encodings of each attention site."""
        return {
            "encoder": self.encoder_encodings,
            "decoder": self.decoder_encodings,
            "cross": self.cross_encodings,
        }

    @property
    def entries(self) -> list[Encoding]:
        """The encodings of all sites."""
        return [e for site in self.sites.values() for e in site]

    def scale_positions(self, factor: float) -> None:
        """Position interpolation at all sites; raises ValueError where it cannot be, with why."""
        scaled = [site.scale_positions(factor) for site in self.sites.values()]
        if not any(scaled):
            raise ValueError("positions cannot be scaled, because no encoding reads positions")

    @property
    def columns(self) -> set[str]:
        """Names of the columns parallel to the source that the encodings read."""
        return {name for e in self.entries for name in e.columns}

    @property
    def needs_lengths(self) -> bool:
        """Whether `start` needs the desired length of each output."""
        return any(e.needs_lengths for e in (*self.decoder_encodings, *self.cross_encodings))

    @property
    def source_limit(self) -> int | None:
        """The longest source, eos included, that the encodings support in the present mode."""
        return self.limits(self.training).source

    @property
    def target_limit(self) -> int | None:
        """The longest target, bos included, that the encodings support in the present mode."""
        return self.limits(self.training).target

    def limits(self, training: bool) -> Limits:
        """The longest sequences that the encodings support, in training or evaluation."""
        source, target, both = (site.max_length(training) for site in self.sites.values())
        longest = least([source, both]), least([target, both])
        languages = self.source_language, self.target_language
        return Limits(
            *(
                most if most is None or language is None else most - 1
                for most, language in zip(longest, languages, strict=True)
            )
        )

    @property
    def column_ranges(self) -> dict[str, range]:
        """The integers that columns may hold, where not all will do."""
        return common_ranges(e.integers_of_columns for e in self.entries)

    def forward(
        self, source: Tensor, target: Tensor, columns: dict[str, Tensor] | None = None
    ) -> Tensor:
        """Logits [batch, target, vocab] of the token after each prefix of target."""
        return self.logits(self.hidden(source, target, columns))

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., dim] -> [..., vocab]."""
        return self.output(hidden)

    def hidden(
        self, source: Tensor, target: Tensor, columns: dict[str, Tensor] | None = None
    ) -> Tensor:
        """States [batch, target, dim] for source ids [batch, source], target [batch, target].

        Rows are padded on the right; target starts with bos and holds no eos, so each row is as
        long as what is to be predicted. `columns`: integers [batch, source | 1].
        """
        memory, allowed = self.encode(source, columns)
        predicted = target.shape[1]
        target = self._in_streams(_with_language(target, self.target_language, 1))
        n = target.shape[1]
        lengths = (target != PAD).sum(1)  # of what is to be predicted, eos included
        decoder = self._pass(
            "decoder",
            target,
            allowed=causal(n, n, target.device),
            causal=True,
            lengths=lengths,
            tokens=target,
            columns=self._columns_in_streams(columns),
        )
        cross = self._pass(
            "cross", target, keys=allowed.shape[-1], allowed=allowed, lengths=lengths
        )
        return self._decode(target, rounded(memory), decoder, cross)[:, n - predicted :]

    def _pass(self, site: str, queries: Tensor, **fields: Any) -> Context:
        """The pass over a whole batch of ids [batch x streams, query]."""
        return whole(
            site,
            queries.shape[1],
            device=queries.device,
            rows=len(queries),
            streams=self.streams,
            training=self.training,
            **fields,
        )

    def _source_mask(self, source: Tensor) -> Tensor:
        """Which tokens of a source the model reads [batch, source].

        Without model.source_eos an EOS counts as padding, unless it is all that there is.
        """
        real = source != PAD
        if self.source_eos:
            return real
        return real & ((source != EOS) | (real.sum(1, keepdim=True) == 1))

    def encode(
        self, source: Tensor, columns: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """States [batch x streams, source, dim] and mask [batch x streams, 1, 1, source].

        Where the model has a source language, its piece comes first.
        """
        source = self._in_streams(_with_language(source, self.source_language, 0))
        real = self._source_mask(source)
        allowed = real[:, None, None, :]
        context = self._pass(
            "encoder",
            source,
            allowed=allowed,
            lengths=real.sum(1),
            tokens=source,
            columns=self._columns_in_streams(columns),
        )
        encodings = self.encoder_encodings
        x = self._embed(self.source_embedding, source, encodings, context)
        x = self.encoder(x, [(encodings, context)])
        return x, allowed

    def start(
        self,
        source: Tensor,
        columns: dict[str, Tensor] | None = None,
        lengths: Tensor | None = None,
    ) -> State:
        """Read source ids [rows, source], to decode one target for each row.

        `lengths` [rows]: desired lengths of the outputs, eos included. Raises ValueError where the
        encodings need them and they are None.
        """
        memory, allowed = self.encode(source, columns)
        if lengths is not None and self.target_language is not None:
            lengths = lengths + 1  # its piece counts, as in training
        if lengths is None and self.needs_lengths:
            raise ValueError("the decoder's encoding needs the desired length of each output")
        lengths = None if lengths is None else self._in_streams(lengths)
        columns = self._columns_in_streams(columns)
        state = State(rounded(memory), allowed, self.decoder.count, self.streams, columns, lengths)
        if self.target_language is not None:  # bos predicts nothing then
            self.advance(source.new_full((len(source), 1), BOS), state)
        return state

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Logits [rows, vocab] of the token after `tokens` [rows]; advances the state.

        A target language of the model replaces bos at the beginning.
        """
        if state.length == 1 and self.target_language is not None:
            tokens = torch.full_like(tokens, self.target_language)
        return self.logits(self.advance(tokens[:, None], state)[:, -1])

    def advance(self, tokens: Tensor, state: State) -> Tensor:
        """States [rows, n, dim] of the next n tokens [rows, n]; advances the state."""
        tokens, n, device = self._in_streams(tokens), tokens.shape[1], tokens.device
        decoder = decoding_step(
            "decoder",
            state.length,
            n,
            device,
            rows=len(tokens),
            streams=self.streams,
            allowed=causal(n, state.length + n, device) if n > 1 else None,
            lengths=None if state.lengths is None else state.per_row(state.lengths),
            tokens=tokens,
            columns={name: state.per_row(c) for name, c in state.columns.items()},
            state=state.recurrent,
            key_caches=state.self_caches,
        )
        cross = cross_step(
            decoder,
            state.memory.shape[1],
            state.beams,
            cached=bool(state.cross_caches[0].length),
            rows=len(state.allowed),
            streams=self.streams,
            allowed=state.allowed,
            lengths=state.lengths,
            state=state.recurrent,
            key_caches=state.cross_caches,
        )
        state.length += n
        return self._decode(tokens, state.memory, decoder, cross)

    def _in_streams(self, rows: Tensor) -> Tensor:
        """Rows [batch, ...], each repeated for its streams, which a stack's `readout` merges."""
        return rows if self.streams == 1 else rows.repeat_interleave(self.streams, 0)

    def _columns_in_streams(self, columns: dict[str, Tensor] | None) -> dict[str, Tensor]:
        return {name: self._in_streams(column) for name, column in (columns or {}).items()}

    def _embed(
        self, table: nn.Module, ids: Tensor, encodings: SiteEncodings, context: Context
    ) -> Tensor:
        """The input of the first layer."""
        x = table(ids) * self.embedding_scale
        if table is self.target_embedding and not self.target_bos:
            x = x.masked_fill((ids == BOS)[..., None], 0)
        return dropout(encodings.embed(x, context), self.dropout, self.training)

    def _decode(self, target: Tensor, memory: Tensor, decoder: Context, cross: Context) -> Tensor:
        """States of target ids that attend to memory [batch, source, dim]."""
        x = self._embed(self.target_embedding, target, self.decoder_encodings, decoder)
        sites = [(self.decoder_encodings, decoder), (self.cross_encodings, cross)]
        return self.decoder(x, sites, memory)


def _with_language(ids: Tensor, language: int | None, at: int) -> Tensor:
    """Ids [batch, length] with that of a language before position `at` of each row."""
    if language is None:
        return ids
    return torch.cat([ids[:, :at], ids.new_full((len(ids), 1), language), ids[:, at:]], dim=1)
