"""Decoding with a cache equals the full pass, and mistakes in it are failing where they are."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks import parity
from nmt.checks.example import perturbed
from nmt.checks.parity import BOUNDS, CONDITIONS, Decoding, Deviation
from nmt.config.settings import Settings
from nmt.encodings.context import Context, Extent
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Index
from nmt.encodings.vectors.relative import Relative
from nmt.model import cache
from nmt.model.cache import Cache, State
from nmt.model.transformer import Transformer

Make = Callable[..., Settings]
Patch = pytest.MonkeyPatch
NAMES = [c.name for c in CONDITIONS]
EVERY = set(NAMES)
TOKENS = 16  # fewer than the command takes, to be quick


def measure(
    settings: Settings, tokens: int = TOKENS, precisions: Iterable[str] = ("float32",)
) -> list[Deviation]:
    return list(parity.measure(perturbed(settings), tokens, precisions))


def failed(cells: list[Deviation], precision: str = "float32") -> set[str]:
    measured = [c for c in cells if c.precision == precision]
    assert len(measured) == len(CONDITIONS)
    return {c.condition.name for c in measured if not c.passed}


@pytest.mark.parametrize(
    "tokens, overrides",
    [
        pytest.param(40, ["encoding=relative", "tau=3"], marks=pytest.mark.slow),
        (20, ["encoding=[absolute,relative]", "model.share_layers=true"]),
        pytest.param(20, ["encoding=[complex_order,spr_relative]"], marks=pytest.mark.slow),
        (20, ["encoding=lstm", "encoding.lstm.hidden=8", "model.norm=post"]),
        (40, ["encoding=learned", "encoding.learned.size=20"]),  # shorter than what is wanted
    ],
    ids=["relative", "shared", "complex", "lstm", "limit"],
)
def test_what_is_right_passes(tokens: int, overrides: list[str], settings_of: Make) -> None:
    precisions = list(BOUNDS) if tokens == 40 else ["float32"]
    cells = measure(settings_of(*overrides), tokens, precisions)
    assert [(c.precision, c.condition.name) for c in cells] == [
        (p, n) for p in precisions for n in NAMES
    ]
    assert all(not failed(cells, precision) for precision in precisions)
    for c in cells:
        assert c.difference <= c.bound
        assert 0.5 < c.largest < 50
        assert c.bound == c.largest * (2**-18 if c.precision == "float32" else 1 / 16)
    # Two ways to compute: were they the same calls, float32 would agree to the last bit.
    assert all(c.difference > 0 for c in cells if c.precision == "float32")


def test_an_output_that_outruns_its_source_passes(settings_of: Make) -> None:
    keys = ("encoding.deberta.where=[encoder,decoder,cross]", "encoding.deberta.k=4")
    model = perturbed(settings_of("encoding=deberta", *keys))
    (deviation,) = parity.measure(model, 20, ["float32"], conditions=CONDITIONS[:1])
    assert deviation.passed, deviation.finding


def test_no_parameter_is_left_where_it_starts(settings_of: Make) -> None:
    settings = settings_of("encoding=[relative,alibi]")
    model = perturbed(settings)
    for name, p in model.named_parameters():
        assert p.numel() and (p != 0).all() and (p != 1).all(), name
    assert not model.training


@pytest.mark.slow
def test_the_seed_decides_all_and_leaves_the_generator_alone(settings_of: Make) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = measure(settings_of("encoding=relative", "seed=3"), 12)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(8)
    again = measure(settings_of("encoding=relative", "seed=3"), 12)
    other = measure(settings_of("encoding=relative", "seed=4"), 12)
    assert first == again
    assert [c.largest for c in first] != [c.largest for c in other]


def decoding(context: Context) -> bool:
    return context.state is not None and context.site == "decoder"


def marked(x: Tensor, amount: Tensor) -> Tensor:
    """x [batch, length, dim] with an amount added that layer norm does not take away."""
    return x + amount * torch.linspace(-0.1, 0.2, x.shape[-1])


def shift_relative(patch: Patch, when: Callable[[Context], bool]) -> None:
    """Let Relative read the row beside the right one."""
    right = Context.clipped

    def clipped(self: Context, tau: int) -> Tensor:
        index = right(self, tau)
        return (index - 1).clamp(min=0) if when(self) else index

    patch.setattr(Context, "clipped", clipped)


def test_an_index_off_by_one_while_decoding(settings_of: Make, monkeypatch: Patch) -> None:
    shift_relative(monkeypatch, decoding)
    cells = measure(settings_of("encoding=relative"), TOKENS, BOUNDS)
    assert failed(cells) == EVERY
    assert failed(cells, "bfloat16") == EVERY


def test_a_position_off_by_one_while_decoding(settings_of: Make, monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        Index, "assign", lambda self, index, context: index + (1 if decoding(context) else 0)
    )
    assert failed(measure(settings_of("encoding=absolute"))) == EVERY
    assert not failed(measure(settings_of("encoding=relative")))  # sees distances only


def test_a_state_that_starts_at_one(settings_of: Make, monkeypatch: Patch) -> None:
    """Keys then lack one position, which is an exception in each cell and not the end."""
    right = State.__init__

    def start(self: State, *args: Any, **options: Any) -> None:
        right(self, *args, **options)
        self.length = 1

    monkeypatch.setattr(State, "__init__", start)
    cells = measure(settings_of("encoding=relative"))
    assert failed(cells) == EVERY
    assert all(c.error and c.error.startswith("RuntimeError at ") for c in cells)


def test_only_several_tokens_at_once_go_wrong(settings_of: Make, monkeypatch: Patch) -> None:
    shift_relative(monkeypatch, lambda at: decoding(at) and at.queries.shape[1] > 1)
    assert failed(measure(settings_of("encoding=relative"))) == {
        "several at once",
        "unused room",
    }  # both do


def test_only_several_tokens_behind_others_go_wrong(settings_of: Make, monkeypatch: Patch) -> None:
    def behind(at: Context) -> bool:
        return decoding(at) and 1 < at.queries.shape[1] < at.keys.shape[1]

    shift_relative(monkeypatch, behind)
    assert failed(measure(settings_of("encoding=relative"))) == {"several at once"}


def test_only_late_positions_go_wrong(settings_of: Make, monkeypatch: Patch) -> None:
    """The last of the tokens is decoded in each condition, and compared."""
    shift_relative(monkeypatch, lambda at: decoding(at) and at.keys.shape[1] == TOKENS)
    assert failed(measure(settings_of("encoding=relative"))) == EVERY
    assert not failed(measure(settings_of("encoding=relative"), tokens=TOKENS - 1))


def test_only_a_used_module_goes_wrong(settings_of: Make, monkeypatch: Patch) -> None:
    """The first pass's length is kept; nothing but the used module has seen another one."""

    def bias(self: Relative, layer: int, context: Context) -> Tensor:
        if not hasattr(self, "seen") and context.state is None:
            self.seen = torch.tensor(context.keys.shape[1])
        return context.delta[:, None] * 0.01 * getattr(self, "seen", TOKENS)

    monkeypatch.setattr(Relative, "bias", bias)
    monkeypatch.setattr(Relative, "hooks", (*Relative.hooks, "bias"))
    failing = failed(measure(settings_of("encoding=relative")))
    assert "after other passes" in failing and not failing & {
        "token by token",
        "several at once",
        "beams",
        "unused room",
    }


def test_a_full_pass_spoilt_by_decoding(settings_of: Make, monkeypatch: Patch) -> None:
    def embed(self: Absolute, x: Tensor, context: Context) -> Tensor:
        if context.state is not None:
            self.dims = replace(self.dims, vocab=1)  # a mark on the module
        return x * 2 if context.state is None and self.dims.vocab == 1 else x

    monkeypatch.setattr(Absolute, "embed", embed)
    assert failed(measure(settings_of("encoding=absolute"))) == {"after other passes"}


def test_cross_attention_has_the_state_that_the_hints_name(
    settings_of: Make, monkeypatch: Patch
) -> None:
    """One dictionary for both sites; its rows are hypotheses, here of three sources."""
    hints = [c.look for c in CONDITIONS if "context.state" in c.look]
    assert len(hints) == 3 and all("context.remember" in hint for hint in hints)
    assert not any("None" in hint or "no context.state" in hint for hint in hints)
    seen: dict[str, Context] = {}

    def bias(self: Relative, layer: int, context: Context) -> None:
        seen[context.site] = context

    monkeypatch.setattr(Relative, "bias", bias)
    monkeypatch.setattr(Relative, "hooks", (*Relative.hooks, "bias"))
    model = perturbed(settings_of("encoding=relative", "encoding.relative.where=[decoder,cross]"))
    made = Decoding(model, parity.make_text(model, 4))
    made.grow(1)
    made.reorder([[0, 0], [1, 1], [2, 2]])
    made.grow(2)
    assert seen["cross"].state is seen["decoder"].state is not None
    assert (seen["cross"].rows, seen["decoder"].rows) == (3, 6)


@pytest.mark.parametrize("part", ["recurrent", "cross", "own", "lengths"])
def test_only_beams_go_wrong(part: str, settings_of: Make, monkeypatch: Patch) -> None:
    right = State.reorder
    overrides = ["encoding=lstm", "encoding.lstm.hidden=8"]

    def rows_first(t: Tensor, rows: Tensor) -> Tensor:
        return t[torch.arange(rows.numel()) % len(t)]

    def reorder(self: State, rows: Tensor) -> None:
        recurrent, lengths = self.recurrent, self.lengths
        right(self, rows)
        if part == "recurrent":
            self.recurrent = {name: rows_first(t, rows) for name, t in recurrent.items()}
        elif part == "lengths" and lengths is not None:
            self.lengths = rows_first(lengths, rows)
        for kept in {"own": self.self_caches, "cross": self.cross_caches}.get(part, []):
            if "keys" in kept._tensors:
                kept._tensors["keys"] = kept._tensors["keys"].flip(0)

    if part == "lengths":  # a made-up encoding that reads the desired length
        overrides = ["encoding=absolute"]
        monkeypatch.setattr(Absolute, "needs_lengths", True)

        def embed(self: Absolute, x: Tensor, context: Context) -> Tensor:
            assert context.lengths is not None
            return marked(x, context.lengths[:, None, None])

        monkeypatch.setattr(Absolute, "embed", embed)
        assert not failed(measure(settings_of(*overrides)))
    monkeypatch.setattr(State, "reorder", reorder)
    failing = failed(measure(settings_of(*overrides)))
    assert "beams" in failing and not failing & {
        "token by token",
        "after other passes",
        "several at once",
        "padding",
    }


@pytest.mark.slow
def test_hypotheses_that_count_as_tokens_go_wrong(settings_of: Make, monkeypatch: Patch) -> None:
    """A template of the distance knows by their places alone which pairs are near."""
    near = ["encoding=conv_spe", "encoding.conv_spe.where=[cross]", "encoding.conv_spe.kernel=3"]
    assert not failed(measure(settings_of(*near)))

    def one(queries: int, keys: int, beams: int = 1) -> Extent:
        return Extent(queries, keys)

    monkeypatch.setattr("nmt.encodings.passes.Extent", one)
    assert failed(measure(settings_of(*near))) == {"beams"}


def test_swaps_within_a_sentence_are_seen(settings_of: Make, monkeypatch: Patch) -> None:
    """Rows that swap are different hypotheses, or forgetting to swap would not show."""
    right, swap = State.reorder, [[1, 0], [3, 3], [5, 4]]

    def reorder(self: State, rows: Tensor) -> None:
        right(self, torch.arange(6).view(3, 2) if rows.tolist() == swap else rows)

    monkeypatch.setattr(State, "reorder", reorder)
    assert failed(measure(settings_of("encoding=none"))) == {"beams"}


def test_only_padding_goes_wrong(settings_of: Make, monkeypatch: Patch) -> None:
    def embed(self: Absolute, x: Tensor, context: Context) -> Tensor:
        return marked(x, torch.tensor(x.shape[1])) if context.site == "encoder" else x

    monkeypatch.setattr(Absolute, "embed", embed)
    assert failed(measure(settings_of("encoding=absolute"))) == {"padding"}


def test_reading_the_padding_of_the_source(settings_of: Make, monkeypatch: Patch) -> None:
    right = Transformer.encode

    def encode(self: Transformer, *args: Any) -> tuple[Tensor, Tensor]:
        memory, allowed = right(self, *args)
        return memory, torch.ones_like(allowed)

    monkeypatch.setattr(Transformer, "encode", encode)
    assert failed(measure(settings_of("encoding=none"))) == {"padding"}


def test_only_reading_beyond_the_length_goes_wrong(settings_of: Make, monkeypatch: Patch) -> None:
    right = Cache.append

    def append(self: Cache, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = right(self, k, v)
        return keys + 0 * self._tensors["keys"][:, :, -1:], values

    monkeypatch.setattr(Cache, "append", append)
    monkeypatch.setattr(cache, "_empty", zeroed(cache._empty))
    cells = measure(settings_of("encoding=absolute"))
    assert failed(cells) == {"unused room"}
    assert all(math.isnan(c.difference) == (c.condition.name == "unused room") for c in cells)


def zeroed(empty: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Fresh memory holds zeros here, not what happens to be there."""
    return lambda *a: empty(*a).zero_()


@pytest.mark.parametrize(
    "value, where", [(math.nan, "steps"), (-math.inf, "full pass"), (math.inf, "both")]
)
def test_what_is_not_finite_fails(
    value: float, where: str, settings_of: Make, monkeypatch: Patch
) -> None:
    """One logit of thousands, and also where both sides agree about it."""
    advance, hidden = Transformer.advance, Transformer.hidden

    def spoil(states: Tensor) -> Tensor:
        states[-1, 0, 0] = value
        return states

    if where != "full pass":
        monkeypatch.setattr(Transformer, "advance", lambda *a: spoil(advance(*a)))
    if where != "steps":
        monkeypatch.setattr(Transformer, "hidden", lambda *a: spoil(hidden(*a)))
    precision = "bfloat16" if where == "both" else "float32"
    cells = measure(settings_of("encoding=none"), 8, [precision])
    assert failed(cells, precision) == EVERY
    assert all(math.isnan(c.difference) for c in cells)


def test_columns_are_made_and_follow_their_rows(settings_of: Make, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Absolute, "columns", frozenset({"heads", "language"}))
    monkeypatch.setattr(Absolute, "sentence_columns", frozenset({"language"}))

    def embed(self: Absolute, x: Tensor, context: Context) -> Tensor:
        if context.site == "encoder":
            x = marked(x, context.column("heads")[..., None])
        return marked(x, context.column("language")[..., None])

    monkeypatch.setattr(Absolute, "embed", embed)
    assert not failed(measure(settings_of("encoding=absolute")))
    right = State.reorder

    def reorder(self: State, rows: Tensor) -> None:
        kept = self.columns
        right(self, rows)
        self.columns = {n: c[torch.arange(len(rows)) % len(c)] for n, c in kept.items()}

    monkeypatch.setattr(State, "reorder", reorder)
    assert "beams" in failed(measure(settings_of("encoding=absolute")))
