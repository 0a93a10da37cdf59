from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmt.config.settings import Settings
from nmt.corpus.batches import Batches
from nmt.corpus.pairs import read_pairs
from nmt.text.vocab import PAD, SPECIALS
from scripts.bench import corpus

VOCAB = 50


@pytest.fixture
def settings(settings_of: Callable[..., Settings]) -> Settings:
    return settings_of("trainer.batch_tokens=300")


def test_peers_get_the_batches_of_the_product(tmp_path: Path, settings: Settings) -> None:
    made = corpus.make(tmp_path, settings, VOCAB, 4, pairs=200)
    options = settings.trainer
    batches = Batches(
        read_pairs(made.store), options.batch_tokens, options.batch_count, settings.seed
    )
    with np.load(made.batches) as file:
        assert len(file.files) == 2 * 4
        for i in range(4):
            source, target = file[f"source_{i}"], file[f"target_{i}"]
            (batch,) = batches.batch(0, i)
            assert np.array_equal(source, batch.source.numpy())
            assert np.array_equal(target, batch.target.numpy())
            assert made.tokens[i] == int((target[:, 1:] != PAD).sum())


def test_text_of_single_characters_is_one_id_each() -> None:
    side = corpus.side(VOCAB)
    lines = corpus.text(5, VOCAB, seed=1)
    for line in lines:
        ids = side.ids(line)
        assert len(ids) == len(line.split()) + 1
        assert min(ids[:-1]) >= SPECIALS
        assert side.text(ids) == line
