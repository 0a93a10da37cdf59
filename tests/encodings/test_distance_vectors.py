"""What encodings tell a kernel is what they compute themselves; who cannot tell is silent."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context, Extent
from nmt.encodings.passes import step, whole
from nmt.encodings.relative import Relative
from nmt.model.transformer import Transformer
from tests.encodings.attending import dims, pass_over, qkv

N = 9
TELLING = [
    *("relative", "relative_key", "relative_value", "relative_per_head", "relative_tied"),
    *(
        "relative_unlimited",
        "relative_sinusoidal",
        "relative_sinusoidal_returnn",
        "[rotary,relative]",
    ),
]
SILENT = ["alibi", "deberta", "[relative,transformer_xl]", "[relative,relative_key]"]
Make = Callable[..., Transformer]


def of(model: Transformer) -> list[tuple[Encodings, Context]]:
    """The encodings of both stacks, and a full pass."""
    return [
        (model.encoder_encodings, whole("encoder", N)),
        (model.decoder_encodings, replace(pass_over(N, "decoder"), extent=Extent(N, N))),
    ]


@pytest.mark.parametrize("option", TELLING)
def test_vectors_give_the_scores_and_outputs(option: str, tiny: Make) -> None:
    for encodings, context in of(tiny(f"encoding={option}").double()):
        sizes = [*encodings][-1].dims
        q, k, v = qkv(N, sizes)
        p = torch.rand(2, sizes.heads, N, N, dtype=torch.float64)
        told = encodings.distance_vectors(1, context)
        assert told is not None
        rows = (context.delta.clamp(-told.tau, told.tau) + told.tau)[0]
        s, o = q @ k.mT, p @ v
        if told.keys is not None:
            s = s + torch.einsum("bhqd,hqkd->bhqk", q, pairs(told.keys, rows, sizes.heads))
        if told.values is not None:
            o = o + torch.einsum("bhqk,hqkd->bhqd", p, pairs(told.values, rows, sizes.heads))
        torch.testing.assert_close(encodings.scores(q, k, 1, context), s)
        torch.testing.assert_close(encodings.outputs(p @ v, q, p, 1, context), o)


def pairs(table: Tensor, rows: Tensor, heads: int) -> Tensor:
    """The vector of each pair of tokens: [heads, query, key, head_dim]."""
    return table.double().expand(heads, -1, -1)[:, rows]


def test_texts_of_all_lengths_have_the_same_number_of_vectors(tiny: Make) -> None:
    """A kernel is compiled for each number of vectors, which takes seconds."""
    encodings = tiny("encoding=relative_unlimited").encoder_encodings
    told = [encodings.distance_vectors(0, whole("encoder", n)) for n in (N, N + 1)]
    assert [vectors.tau for vectors in told if vectors is not None] == [255, 255]
    with pytest.raises(ValueError, match="distance 256: longest=256 has vectors to 255"):
        encodings.distance_vectors(0, whole("encoder", 257))


@pytest.mark.parametrize("option", SILENT)
def test_others_are_silent(option: str, tiny: Make) -> None:
    for encodings, context in of(tiny(f"encoding={option}")):
        assert encodings.distance_vectors(0, context) is None


@pytest.mark.parametrize("at", ["sample", "{index: {step: 2}}", "{index: {step: -1}}"])
def test_positions_that_are_not_consecutive_are_no_matter_of_a_kernel(at: str, tiny: Make) -> None:
    encodings, context = of(tiny("encoding=relative", f"+encoding.relative.at={at}"))[0]
    assert encodings.distance_vectors(0, replace(context, training=True)) is None


def test_a_step_of_decoding_is_no_matter_of_a_kernel() -> None:
    last = step("decoder", N - 1, 1, torch.device("cpu"))
    assert Encodings([Relative(dims("decoder"))]).distance_vectors(0, last) is None
    unknown = pass_over(N, "decoder")  # whose positions the host would have to read
    assert Encodings([Relative(dims("decoder"))]).distance_vectors(0, unknown) is None


class Doubled(Relative):
    """Changes what the vectors add."""

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        return 2 * super().scores(s, q, k, layer, context)


def test_who_changes_a_part_does_not_inherit_what_was_told() -> None:
    context = replace(pass_over(N), extent=Extent(N, N))
    assert Encodings([Relative(dims())]).distance_vectors(0, context) is not None
    assert Encodings([Doubled(dims())]).distance_vectors(0, context) is None
    assert Doubled(dims()).by_distance(0, context.delta[0, 0]) is None


def test_a_causal_pass_is_said_to_be_one(
    tiny: Make, ids: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then, and only then, a kernel need not read the mask."""
    seen: dict[str, Context] = {}
    plain = Encodings.bias

    def spy(self: Encodings, layer: int, context: Context) -> Tensor | None:
        seen[context.site] = context
        return plain(self, layer, context)

    monkeypatch.setattr(Encodings, "bias", spy)
    tiny("encoding=relative")(ids(3, 6), ids(3, 5, seed=1))
    own = seen["decoder"]
    assert own.causal and own.allowed is not None
    assert torch.equal(own.allowed[0, 0], torch.ones(5, 5).tril().bool())
    assert not seen["encoder"].causal and not seen["cross"].causal
