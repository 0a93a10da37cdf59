"""The random numbers that kernels are compared with are those of their authors."""

from scripts.kernels.grid import draws


def test_philox_gives_its_authors_known_answer() -> None:
    """Random123's kat_vectors: philox4x32, 7 rounds, counter and key 0."""
    halves = draws(0, 1, 1, 8)[0, 0].tolist()
    words = [low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    assert words == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]


def test_heads_queries_and_keys_draw_different_numbers() -> None:
    found = draws(7, 3, 5, 40).flatten()
    assert int(found.min()) >= 0 and int(found.max()) < 2**16
    assert len(found.unique()) > 590  # of 600
    assert (draws(8, 3, 5, 40).flatten() == found).sum() < 3
