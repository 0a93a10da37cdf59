"""Outputs of a least or an exact length, and without repeated n-grams, against plain loops."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.settings import Settings, with_decode
from nmt.decode.beam import NEVER
from nmt.decode.engine import NOT_EOS
from nmt.decode.sampling import Sampling, probabilities, random_numbers
from nmt.decode.search import Step, search, with_new_ngrams, with_required
from nmt.decode.translator import Translation, Translator
from nmt.errors import RefusedLinesError, UserError
from nmt.modeldir import Trained
from nmt.text.vocab import EOS as EOS_ID
from tests.decode.copying import decode
from tests.decode.test_beam import BOS, EOS, Table, by_lists, whole

CPU = torch.device("cpu")
LINES = ["c a d", "b", "", "a e i b f e", "c", "e h i g i"]


def prefixes_of(table: Table, length: int) -> list[tuple[int, ...]]:
    """The outputs of so many ids in the order of the table's rows."""
    outputs: list[tuple[int, ...]] = [()]
    for _ in range(length):
        outputs = [(*ids, token) for ids in outputs for token in range(table.vocab)]
    return outputs


def restricted(
    table: Table, banned: Callable[[int, tuple[int, ...], int], bool], fallback: bool
) -> Table:
    """The table where `banned(sentence, ids, token)` have no probability.

    With `fallback`, a row that would have none left stays as it is.
    """
    tables = [t.clone() for t in table.tables]
    for length, t in enumerate(tables):
        for sentence in range(table.batch):
            for row, ids in enumerate(prefixes_of(table, length)):
                kept = t[sentence, row].tolist()
                left = [
                    NEVER if banned(sentence, ids, token) else value
                    for token, value in enumerate(kept)
                ]
                possible = any(value > NEVER for value in left)
                if possible or not fallback:
                    t[sentence, row] = torch.tensor(left)
    return Table(tables)


def repeats(n: int, ids: Sequence[int], token: int) -> bool:
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return len(ids) >= n - 1 and (*ids[len(ids) - n + 1 :], token) in grams


def same(step: Step, expected: Table, limits: list[int], beam: int) -> None:
    oracle = [by_lists(expected, s, limit, beam, 0.6) for s, limit in enumerate(limits)]
    assert whole(step, limits, beam, 0.6) == [found.hypotheses for found in oracle]


LIMITS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3)


@given(st.integers(0, 2**31), LIMITS, st.integers(1, 4), st.booleans(), st.integers(0, 2))
def test_lengths_and_prefixes_are_those_of_a_table_without_all_else(
    seed: int, lengths: list[tuple[int, int]], beam: int, forced: bool, prefix: int
) -> None:
    """Each sentence has lengths of its own; the first one begins with `prefix` ids of 3."""
    limits = [max(pair) for pair in lengths]
    least = limits if forced else [min(pair) for pair in lengths]
    table = Table.random(seed, len(limits), 4, 4, levels=9)

    def banned(sentence: int, ids: tuple[int, ...], token: int) -> bool:
        early = len(ids) < least[sentence]
        if sentence == 0 and early and len(ids) < prefix:
            return token != 3
        return early if token == EOS else forced and not early

    places = [[NOT_EOS] * low + [EOS] * forced for low in least]
    places[0][: min(prefix, least[0])] = [3] * min(prefix, least[0])
    step = with_required(table.again(), places, EOS, CPU)
    same(step, restricted(table, banned, False), limits, beam)
    step = with_required(table.again(), places, EOS, CPU)
    for hypotheses, low, high in zip(whole(step, limits, beam, 0.6), least, limits, strict=True):
        assert all(low <= len(h.ids) <= high for h in hypotheses)
        assert all(h.finished for h in hypotheses) or not forced


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_ngrams_are_those_of_a_table_without_repetitions(
    seed: int, batch: int, n: int, beam: int
) -> None:
    table = Table.random(seed, batch, 4, 4, levels=9)
    for t in table.tables:
        t[..., EOS] -= 3  # outputs are long
    expected = restricted(table, lambda _, ids, token: repeats(n, ids, token), True)
    same(with_new_ngrams(table.again(), n), expected, [4] * batch, beam)


def test_samples_are_restricted_too_with_the_log_probability_of_the_model() -> None:
    table, count = Table.random(3, 2, 4, 4), 200
    numbers = random_numbers(1, [(1, 0), (2, 0)], count, 5)
    step = with_required(table.again(), [[NOT_EOS, NOT_EOS, EOS], []], EOS, CPU)
    step = with_new_ngrams(step, 1)
    limits = torch.tensor([2, 4])
    strategy = Sampling(limits, numbers, distribution=probabilities, eos=EOS)
    first, second = search(step, strategy, BOS)
    assert {tuple(h.ids) for h in first} == {(2, 3), (3, 2)}
    assert {len(h.ids) for h in second} <= {0, 1, 2}
    for sentence, samples in enumerate((first, second)):
        for h in samples[:20]:
            each = [table.after(sentence, tuple(h.ids[:t])) for t in range(len(h.ids) + 1)]
            total = sum(row[i] for row, i in zip(each, [*h.ids, EOS], strict=True))
            assert h.finished and h.log_prob == pytest.approx(total, abs=1e-5)


def test_a_prefix_may_repeat_itself() -> None:
    table = Table.random(5, 1, 4, 4)
    step = with_new_ngrams(with_required(table, [[2, 2, 2]], EOS, CPU), 1)
    (found,) = whole(step, [4], 3, 0.6)
    assert {tuple(h.ids) for h in found} == {(2, 2, 2), (2, 2, 2, 3)}


@pytest.fixture
def model(of_letters: Callable[..., Trained]) -> Trained:
    some = of_letters("encoding=relative")
    with torch.no_grad():
        some.model.output.bias[EOS_ID] += 1.5  # outputs end early, or repeat a letter
        some.model.output.bias[some.target.vocabulary.ids(["a"])[0]] += 1.5
    return some


def translations(some: Trained, columns: Any = None, **changes: Any) -> list[Translation]:
    options = decode(**{"max_length_ratio": 1.0, "max_length_offset": 6, **changes})
    return [best for (best,) in Translator.of(some, options).translate(LINES, columns=columns)]


WAYS: list[dict[str, Any]] = [{"beam_size": 3}, {"method": "sample"}]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_translations_have_the_lengths_that_the_column_says(
    model: Trained, way: dict[str, Any]
) -> None:
    lengths = [5, 0, 7, 12, 1, 0]
    columns = {"length": [str(n) for n in lengths]}
    found = translations(model, columns, length="forced", **way)
    assert [len(t.ids) for t in found] == [5, 0, 0, 12, 1, 0]  # of the empty line none
    assert all(t.finished for t in found)
    for changes in ({"batch_tokens": 1}, {"window": 2}):
        other = translations(model, columns, length="forced", **way, **changes)
        assert [t.ids for t in other] == [t.ids for t in found]
    with pytest.raises(UserError, match="column length: this model reads it"):
        translations(model, length="forced")
    columns["length"][1] = "-1"
    with pytest.raises(UserError, match="line 2: column 'length' is below 0"):
        translations(model, columns, length="forced", **way)


def test_a_forced_length_beyond_the_table_is_a_limit(
    model: Trained, caplog: pytest.LogCaptureFixture
) -> None:
    some = Translator.of(model, decode(length="forced"))
    some.engine.target_limit = 4
    found = list(some.translate(["a b"], columns={"length": ["9"]}))
    assert len(found[0][0].ids) == 3 and "cut at the limit" in caplog.text


def test_a_prefix_may_be_as_long_as_a_forced_length(model: Trained) -> None:
    """Of one piece of source, whose translation may else have seven; and it may be longer."""
    some = Translator.of(model, decode(length="forced", max_length_ratio=1.0, max_length_offset=6))
    prefix = " ".join("abcdefghi" * 3)
    for length, pieces in ((60, 60), (9, 27)):
        columns = {"length": [str(length)]}
        ((found,),) = some.translate(["a"], columns=columns, prefixes=[prefix])
        assert len(found.ids) == pieces and found.text.startswith(prefix)
    some.engine.target_limit = 20
    lines = some.translate(["a"], columns={"length": ["60"]}, prefixes=[prefix])
    with pytest.raises(RefusedLinesError):
        list(lines)


def test_a_least_length_is_a_ratio_of_the_source_within_the_limit(model: Trained) -> None:
    free, long = translations(model), translations(model, min_length_ratio=1.0)
    pieces = [len(line.split()) for line in LINES]
    assert all(len(t.ids) >= n for t, n in zip(long, pieces, strict=True))
    assert any(len(t.ids) < n for t, n in zip(free, pieces, strict=True))


def test_a_shortest_length_above_the_longest_is_refused(
    settings_of: Callable[..., Settings],
) -> None:
    with pytest.raises(UserError, match=r"above decode\.max_length_ratio=2\.0, which decides then"):
        with_decode(settings_of(), {"min_length_ratio": 3.0})
