"""The coverage penalty: in the beam against plain lists, and its attention against full passes."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.decode.engine import length_penalty
from nmt.decode.models import LEAST
from nmt.decode.translator import Translation, Translator
from nmt.model.layers import AttentionRecord, watching
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.vocab import BOS as BOS_ID
from nmt.text.vocab import EOS as EOS_ID
from tests.decode.copying import decode
from tests.decode.test_beam import Table, by_lists, whole

LINES = ["c a d", "b", "", "a e i b f e", "c", "e h i g i"]
WEIGHT = 0.7


@given(
    st.integers(0, 2**31), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(2, 4)
)
def test_hypotheses_are_those_of_a_search_by_lists(seed: int, limits: list[int], beam: int) -> None:
    table = Table.random(seed, len(limits), 4, 4, levels=9)
    random = torch.Generator().manual_seed(seed + 1)
    costs = [-torch.randint(9, t.shape[:2], generator=random).float() for t in table.tables]
    step = table.again()

    def of_rows() -> Tensor:
        return costs[len(step.seen) - 1][step.sentence, step.code]

    def of_output(sentence: int, ids: Sequence[int]) -> float:
        code = 0
        for token in ids:
            code = code * table.vocab + token
        return float(costs[len(ids)][sentence, code])

    oracle = [by_lists(table, s, limit, beam, 0.6, of_output) for s, limit in enumerate(limits)]
    found = whole(step, limits, beam, 0.6, coverage=of_rows)
    assert [[h.ids for h in some] for some in found] == [
        [h.ids for h in one.hypotheses] for one in oracle
    ]
    for some, one in zip(found, oracle, strict=True):
        assert [h.score for h in some] == pytest.approx([h.score for h in one.hypotheses])
        assert [h.log_prob for h in some] == [h.log_prob for h in one.hypotheses]


Make = Callable[..., Trained]


@pytest.fixture
def member(of_letters: Make) -> Make:
    """Makes a model whose attention and outputs differ from place to place."""
    return partial(of_letters, shake=0.3)


def translations(*members: Trained, n_best: int = 4, **changes: Any) -> list[list[Translation]]:
    first, *others = members
    options = decode(beam_size=4, max_length_ratio=1.0, max_length_offset=3, **changes)
    return list(Translator.of(first, options, *others).translate(LINES, n_best))


@torch.inference_mode()
def expected_score(models: Sequence[Transformer], source: Tensor, t: Translation) -> float:
    """By one pass over the whole output: log-probability, and attention of each of its steps."""
    attended, probabilities = [], []
    for model in models:
        layers: list[Tensor] = []

        def add(record: AttentionRecord, layers: Any = layers) -> None:
            if record.site == "cross":  # [streams, heads, query, key]
                steps = record.probabilities[:, :, -1 - len(t.ids) :]  # a language adds one before
                layers.append(steps.double().mean((0, 1)))

        with watching(model, add):
            logits = model(source, torch.tensor([[BOS_ID, *t.ids]]))[0]
        attended.append(torch.stack(layers).mean(0).sum(0))
        probabilities.append(logits.double().softmax(-1))
    log_probs = torch.stack(probabilities).mean(0).log()
    output = [*t.ids, EOS_ID] if t.finished else list(t.ids)
    total = sum(float(log_probs[at, token]) for at, token in enumerate(output))
    pieces = torch.stack(attended).mean(0)[:-1]  # without eos
    uncovered = sum(math.log(min(1.0, max(LEAST, float(a)))) for a in pieces)
    return total / length_penalty(len(output), decode().alpha) + WEIGHT * uncovered


@pytest.mark.parametrize(
    "models",
    [
        [["encoding=complex_order"]],
        [["encoding=absolute"], ["encoding=rotary", "model.decoder_layers=1"]],
    ],
    ids=str,
)
def test_attention_is_that_of_a_pass_over_the_whole_output(
    member: Make, models: list[list[str]]
) -> None:
    members = [member(*words, seed=seed) for seed, words in enumerate(models)]
    found = translations(*members, coverage_penalty=WEIGHT)
    for line, some in zip(LINES, found, strict=True):
        source = torch.tensor([members[0].source.ids(line)])
        for t in some if line else ():
            expected = expected_score([m.model for m in members], source, t)
            assert t.score == pytest.approx(expected, abs=2e-4)
    alone = translations(*members, coverage_penalty=WEIGHT, batch_tokens=1)
    assert [[t.ids for t in some] for some in alone] == [[t.ids for t in some] for some in found]


def test_what_is_before_a_language_attends_to_nothing(member: Make) -> None:
    one = member("encoding=relative")
    one.model.target_language = one.target.ids("c")[0]
    for line, some in zip(LINES, translations(one, coverage_penalty=WEIGHT), strict=True):
        for t in some if line else ():
            expected = expected_score([one.model], torch.tensor([one.source.ids(line)]), t)
            assert t.score == pytest.approx(expected, abs=2e-4)
