from dataclasses import replace

import pytest

from scripts.bench import flops
from tests.composing import settings_of
from tests.conftest import TINY

SIZE = replace(
    settings_of(*TINY).model, encoder_layers=1, decoder_layers=1, dim=2, feedforward_dim=3, heads=1
)
VOCAB = 5


def product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns


def test_one_layer_by_hand() -> None:
    """A source of 3 tokens and a target of 2, every product written down."""
    encoder = 4 * product(3, 2, 2)  # query, key, value, out
    encoder += product(3, 2, 3) + product(3, 3, 2)  # scores, weighted values
    encoder += product(3, 2, 3) + product(3, 3, 2)  # feed-forward
    assert flops.encoding(SIZE, 3) == encoder
    decoder = 4 * product(2, 2, 2)  # self: query, key, value, out
    decoder += 2 * (product(1, 2, 1) + product(1, 2, 2))  # the first sees 1 token, the second 2
    decoder += 2 * product(2, 2, 2) + 2 * product(3, 2, 2)  # cross: query, out; key, value
    decoder += product(2, 2, 3) + product(2, 3, 2)  # cross: scores, weighted values
    decoder += product(2, 2, 3) + product(2, 3, 2)  # feed-forward
    decoder += product(2, 2, 5)  # vocabulary
    assert flops.decoding(SIZE, VOCAB, 3, 2) == decoder
    assert flops.training(SIZE, VOCAB, [3], [2]) == 3 * (encoder + decoder)


@pytest.mark.parametrize("beam", [1, 4])
def test_search_reads_the_source_once(beam: int) -> None:
    memory = 2 * product(3, 2, 2)
    once = flops.encoding(SIZE, 3) + memory
    assert flops.searching(SIZE, VOCAB, [3], 2, beam) == once + beam * (
        flops.decoding(SIZE, VOCAB, 3, 2) - memory
    )
