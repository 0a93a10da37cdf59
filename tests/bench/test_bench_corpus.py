from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmt.config.settings import Settings
from nmt.corpus.batches import Batches
from nmt.corpus.pairs import PairStore
from nmt.text.vocab import EOS, PAD, SPECIALS
from scripts.bench import corpus, flops, news

VOCAB = 50


@pytest.fixture
def settings(settings_of: Callable[..., Settings]) -> Settings:
    return settings_of("trainer.batch_tokens=300")


def test_the_same_seed_gives_the_same(tmp_path: Path, settings: Settings) -> None:
    one, two = (
        corpus.make(tmp_path / name, settings, VOCAB, 3, pairs=200) for name in ("one", "two")
    )
    for name in ("source.ids", "target.ids", "source.offsets"):
        assert (one.store / name).read_bytes() == (two.store / name).read_bytes()
    assert one.tokens == two.tokens
    settings.seed += 1
    other = corpus.make(tmp_path / "other", settings, VOCAB, 3, pairs=200)
    assert (one.store / "source.ids").read_bytes() != (other.store / "source.ids").read_bytes()


def test_peers_get_the_batches_of_the_product(tmp_path: Path, settings: Settings) -> None:
    made = corpus.make(tmp_path, settings, VOCAB, 4, pairs=200)
    options = settings.trainer
    batches = Batches(
        PairStore(made.store), options.batch_tokens, options.batch_count, settings.seed
    )
    real, places = 0, 0
    with np.load(made.batches) as file:
        assert len(file.files) == 2 * 4
        for i in range(4):
            source, target = file[f"source_{i}"], file[f"target_{i}"]
            (batch,) = batches.batch(0, i)
            assert np.array_equal(source, batch.source.numpy())
            assert np.array_equal(target, batch.target.numpy())
            assert made.tokens[i] == int((target[:, 1:] != PAD).sum())
            lengths = [int(n) for n in (source != PAD).sum(1)]
            wanted = [int(n) for n in (target[:, 1:] != PAD).sum(1)]
            assert made.flops[i] == flops.training(settings.model, VOCAB, lengths, wanted)
            real, places = real + sum(lengths), places + source.size
    assert made.real[0] == pytest.approx(real / places)


def test_lengths_and_ids_are_as_said(tmp_path: Path, settings: Settings) -> None:
    source, target = corpus.lengths(20_000, 26, seed=1)
    assert abs(source.mean() - 26) < 1
    assert abs(target.mean() - 26) < 1
    assert 2 <= source.min() < 6
    assert source.max() == 100
    assert np.corrcoef(source, target)[0, 1] > 0.9
    ids = corpus.zipf(100_000, 1000, seed=1)
    counts = np.bincount(ids, minlength=1000)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.15)
    same = corpus.make(tmp_path, settings, VOCAB, 2, pairs=20, mean=9, equal=True)
    store = PairStore(same.store)
    assert set(store.lengths["source"]) == set(store.lengths["target"]) == {9}
    first = store.pair(0)[0]
    assert first[-1] == EOS
    assert min(first[:-1]) >= SPECIALS
    assert same.real == (1.0, 1.0)


def test_columns_are_written_where_they_are_read(tmp_path: Path, settings: Settings) -> None:
    wanted = frozenset(("heads", "words", "language"))
    made = corpus.make(tmp_path, settings, VOCAB, 2, pairs=20, columns=wanted)
    store = PairStore(made.store)
    assert set(store.columns) == wanted
    for i in range(20):
        start, end = (int(n) for n in store.offsets["source"][i : i + 2])
        heads, words_ = store.columns["heads"][start:end], store.columns["words"][start:end]
        assert list(words_) == list(range(end - start))
        for place in range(len(heads)):  # each leads to a root
            seen = {place}
            while heads[place]:
                place = heads[place] - 1
                assert place not in seen
                seen.add(place)


def test_text_of_single_characters_is_one_id_each() -> None:
    side = corpus.side(VOCAB)
    lines = corpus.text(5, VOCAB, seed=1)
    for line in lines:
        ids = side.ids(line)
        assert len(ids) == len(line.split()) + 1
        assert min(ids[:-1]) >= SPECIALS
        assert side.text(ids) == line


def test_made_up_text_is_seeded_and_odd_enough() -> None:
    lines = news.text(300, seed=1)
    assert lines == news.text(300, seed=1) != news.text(300, seed=2)
    whole = " ".join(lines)
    assert all(odd in whole for odd in ("z.B.", "1.234,5", "..."))
    assert all(line[:1] == line[:1].upper() for line in lines)
    assert len(set(whole.split())) > 1000


def test_made_up_text_has_ever_more_words_and_lines_as_long_as_news() -> None:
    lines = news.text(12_000, seed=3)
    each = [line.split(" ") for line in lines]
    assert 21 < sum(map(len, each)) / len(each) < 23
    quarter = len({word for line in each[:3000] for word in line})
    assert 4**0.6 < len({word for line in each for word in line}) / quarter < 4**0.8  # Heaps
