"""Searches on a pretended GPU: what the CPU finds, and a wait every `CHECK_EVERY` steps."""

import logging
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
import torch
from torch import Tensor

from nmt.checks import example
from nmt.decode.engine import Hypothesis, Source
from nmt.decode.search import CHECK_EVERY
from nmt.decode.torch_engine import TorchEngine
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system.device import to_host
from nmt.text.side import Side
from nmt.text.vocab import EOS, Vocabulary
from tests.composing import every_encoding, settings_of
from tests.decode.copying import Spaces, decode
from tests.gpu.pretended import GPU, pretended

pytestmark = pytest.mark.slow

Make = Callable[..., Transformer]
VOCAB = 30
FAST = ["relative", "lstm", "complex_order", "ldpe"]
LIMITS = [11, 3, 20, 0]  # ids of each output
# Waits of a batch before its first step, and why they may be.
AT_FIRST = {
    "trees.py:ancestors index",  # heads outside of the sentence
    "trees.py:ancestors _local_scalar_dense",  # loops go as deep as the deepest tree
    "lstm.py:_bidirectional _to_copy",  # torch packs sentences by lengths on the host
    "graph_transformer.py:make _to_copy",  # and paths
    "paths.py:paths _unique2",  # how many different paths there are
}
# Encodings that wait at every step besides.
SAME = {"floater.py:_same equal"}  # has a parameter changed since the last step?
EACH_STEP = {"floater": SAME, "floater_cross": SAME}
LOOK = "device.py:to_host _to_copy"


class Searched(NamedTuple):
    """What a batch came to."""

    hypotheses: list[list[Hypothesis]]
    steps: int
    waits: Counter[str]


@pytest.fixture(autouse=True)
def no_grad(monkeypatch: pytest.MonkeyPatch) -> None:
    """In inference mode, torch shows a mode no copies and reads, but what they are parts of."""
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)


def sources_of(model: Transformer) -> list[Source]:
    """Four sentences of unlike length, the third with a prefix."""
    made = []
    for row, length in enumerate((4, 7, 2, 5)):
        ids = example.ids(1, length, VOCAB, seed=row)
        ids[0, -1] = EOS
        columns = example.columns(model.entries, ids, seed=row)
        rows = {name: column[0].tolist() for name, column in columns.items()}
        made.append(Source(ids[0].tolist(), rows, required=[9, 4] if row == 2 else []))
    return made


def searched(models: list[Transformer], beam: int = 3, **changes: Any) -> Searched:
    """All there is for a batch, on the device of the models."""
    vocabulary = Vocabulary([f"w{number}" for number in range(VOCAB - 4)])
    side = Side(cast(Any, Spaces()), vocabulary)
    members = [Trained(settings_of(), model, side, side, {}) for model in models]
    engine = TorchEngine(members, decode(beam_size=beam, **changes))
    steps: list[int] = []
    models[0].decoder.register_forward_hook(lambda *_: steps.append(1))
    table = engine.target_limit or 99
    sources = [
        source._replace(limit=min(limit, table - 1))
        for source, limit in zip(sources_of(models[0]), LIMITS, strict=True)
    ]
    found = engine.search(sources, n_best=beam)
    return Searched(found, len(steps), Counter())


def on_both(make: Make, *options: tuple[str, ...], **changes: Any) -> Searched:
    """Search on the pretended GPU; AssertionError where the CPU finds another thing."""
    plain = searched([make(*some).double() for some in options], **changes)
    with pretended() as gpu:
        models = [make(*some).double().to(GPU) for some in options]
        gpu.waits.clear()
        there = searched(models, **changes)._replace(waits=gpu.waits.copy())
    assert text_of(there.hypotheses) == text_of(plain.hypotheses)
    return there


def text_of(hypotheses: list[list[Hypothesis]]) -> list[list[tuple[list[int], str, bool]]]:
    """What is the same wherever sums are made in another order."""
    return [[(h.ids, f"{h.score:.4f}", h.finished) for h in some] for some in hypotheses]


def looks(there: Searched) -> int:
    """How often a search of so many steps may wait: for what is done, and no more."""
    return -(-there.steps // CHECK_EVERY)


@pytest.mark.parametrize("option", every_encoding(fast=FAST))
def test_every_search_waits_once_in_eight_steps(option: str, tiny: Make) -> None:
    there = on_both(tiny, (f"encoding={option}",))
    assert there.steps >= CHECK_EVERY
    assert there.waits.pop(LOOK) == looks(there)
    assert set(there.waits) <= AT_FIRST | EACH_STEP.get(option, set())
    if option not in EACH_STEP:
        assert there.waits.total() <= 12


def test_an_ensemble_and_bfloat16_wait_no_more(tiny: Make) -> None:
    there = on_both(tiny, ("encoding=relative",), ("encoding=alibi",))
    assert there.waits == {LOOK: looks(there)}
    with pretended() as gpu:
        model = tiny("encoding=relative").to(GPU)
        gpu.waits.clear()
        there = searched([model], precision="bfloat16")
        assert gpu.waits == {LOOK: looks(there)}


def short_of_memory(model: Transformer, most: int) -> None:
    """Raise what torch does where memory is short, for a batch of more than `most` sentences."""
    held: list[weakref.ref[Tensor]] = []

    def full(module: object, inputs: tuple[Tensor]) -> None:
        assert all(tensor() is None for tensor in held), "memory of the batch that did not fit"
        if len(inputs[0]) > most:
            tensor = inputs[0] + 1
            held.append(weakref.ref(tensor))
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.source_embedding.register_forward_pre_hook(full)


def test_a_batch_too_large_for_the_memory_is_searched_in_halves(
    tiny: Make, caplog: pytest.LogCaptureFixture
) -> None:
    plain = searched([tiny("encoding=relative").double()])
    with pretended():
        model = tiny("encoding=relative").double().to(GPU)
        short_of_memory(model, 1)
        there = searched([model])
    assert text_of(there.hypotheses) == text_of(plain.hypotheses)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "decode.batch_tokens=60: too much for the memory of gpu:0; batches that do not fit are "
        "searched in halves; a smaller one is faster"
    )


def test_too_little_memory_for_one_sentence_is_an_error(tiny: Make) -> None:
    with pretended():
        model = tiny("encoding=relative").to(GPU)
        short_of_memory(model, 0)
        with pytest.raises(
            UserError, match=r"^a batch \(lines: 1, pieces of the longest: \d+\): too"
        ) as error:
            searched([model])
    assert error.value.code == Exit.NO_MEMORY


def test_numbers_of_any_size_come_by_one_copy() -> None:
    def some(columns: Tensor) -> list[Tensor]:
        return [columns[:, 1], columns[:0], columns > 3, columns.T.long(), columns[0, :1].expand(3)]

    columns = torch.arange(12.0).view(4, 3)
    with pretended() as gpu:
        there = some(columns.to(GPU))
        gpu.waits.clear()
        came = to_host(there)
        assert gpu.waits == {LOOK: 1}
    for one, t in zip(came, some(columns), strict=True):
        assert one.dtype == t.dtype
        assert torch.equal(one, t)


def test_sampling_waits_once_in_eight_steps(tiny: Make) -> None:
    there = on_both(tiny, ("encoding=relative",), method="sample", top_k=7)
    assert there.steps > CHECK_EVERY
    assert there.waits == {LOOK: looks(there)}
