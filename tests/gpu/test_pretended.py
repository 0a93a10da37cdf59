"""On a pretended GPU: no two devices meet, and the host waits only where a list says so."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from nmt.checks import example
from nmt.corpus.batches import Batch
from nmt.encodings.vectors.by_row import sum_by_row
from nmt.model.transformer import Transformer
from nmt.text.vocab import BOS, EOS, PAD
from nmt.training import feed, loss, validation
from nmt.training.directory import open_run
from nmt.training.distributed import World
from nmt.training.reports import MetricsLog
from nmt.training.trainer import Trainer
from tests.composing import every_encoding
from tests.gpu.pretended import GPU, pretended
from tests.training import tiny as training

pytestmark = pytest.mark.slow

Make = Callable[..., Transformer]
CPU = torch.device("cpu")
VOCAB = 30

# Where a training pass waits for a GPU, and why it may.
ALLOWED = {
    "trees.py:ancestors index",  # heads outside of the sentence
    "trees.py:ancestors _local_scalar_dense",  # loops go as deep as the deepest tree
    "lstm.py:_bidirectional _to_copy",  # torch packs sentences by lengths on the host
    "graph_transformer.py:make _to_copy",  # and paths
    "paths.py:paths _unique2",  # how many different paths there are
}
PLAIN = [f"model.{which}dropout=0" for which in ("", "attention_", "feedforward_")]
MODELS = {
    "dropout": ["encoding=[absolute,relative,t5]", *(f"{word}.1" for word in PLAIN)],
    "shared_layers": ["model.share_layers=true"],
    "no_source_eos": ["model.source_eos=false", "model.norm=post", "model.activation=swish"],
    "complex": ["encoding=complex_order", "model.feedforward=complex", "model.norm=post"],
    "bidirectional": ["encoding=gru", "encoding.gru.bidirectional=true"],
}


class Learnt(NamedTuple):
    """What an update makes of a model."""

    loss: Tensor
    norm: Tensor  # of the gradient
    gradients: dict[str, Tensor]  # clipped


def batch(model: Transformer) -> Batch:
    """Two pairs of unlike length, padded."""
    source, target = example.ids(2, 7, VOCAB), example.ids(2, 6, VOCAB, seed=1)
    source[:, -1], target[:, 0], target[:, -1] = EOS, BOS, EOS
    source[0, 4:] = target[0, 4:] = PAD
    source[0, 4], target[0, 4] = EOS, EOS
    return Batch(source, target, [1, 2], example.columns(model.entries, source))


def learn(model: Transformer, device: torch.device) -> Learnt:
    """One update as the trainer makes it, of a model that is on the device."""
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)
    ready = feed.to_device(batch(model), device)
    states = loss.target_states(model.hidden, ready)
    summed, _ = loss.smoothed_loss(states, model.output, ready.labels, 0.1)
    summed.backward()
    norm = get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    clip_grads_with_norm_(model.parameters(), 1.0, norm)
    optimizer.step()
    given = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return Learnt(summed.detach(), norm, given)


def check(model: Transformer) -> Counter[str]:
    """Learn and decode on the pretended GPU, as on the CPU; gives the waits of the update.

    With dropout the two draw by different kernels, and so learn different things.
    """
    model.train()
    start = {name: t.clone() for name, t in model.state_dict().items()}
    plain = learn(model, CPU)
    model.load_state_dict(start)
    model.zero_grad()
    with pretended() as gpu:
        model.to(GPU)
        gpu.waits.clear()
        learnt = learn(model, GPU)
        waits = gpu.waits.copy()
        decode(model.eval())
        if model.dropout:
            return waits
        torch.testing.assert_close(learnt.loss.cpu(), plain.loss, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(learnt.norm.cpu(), plain.norm, rtol=1e-4, atol=1e-5)
        assert learnt.gradients.keys() == plain.gradients.keys()
        for name, gradient in learnt.gradients.items():
            torch.testing.assert_close(gradient.cpu(), plain.gradients[name], rtol=1e-4, atol=1e-5)
    return waits


@torch.no_grad()
def decode(model: Transformer) -> None:
    """Read sources, and take steps with hypotheses that move, on the pretended GPU."""
    source, target, _, columns = batch(model)
    there = {name: t.to(GPU) for name, t in columns.items()}
    lengths = torch.tensor([5, 6]).to(GPU) if model.needs_lengths else None
    state = model.start(source.to(GPU), there, lengths)
    hypotheses = [0, 1]  # the sentence of each
    for step, rows in enumerate(([[0, 0], [1, 1]], [[1, 0], [2, 2]], [[2, 3]])):
        logits = model.step(target[hypotheses, step].to(GPU), state)
        hypotheses = [hypotheses[row] for group in rows for row in group]
        assert logits.device == GPU
        state.reorder(torch.tensor(rows).to(GPU))


@pytest.mark.parametrize("option", every_encoding())
def test_encodings_meet_no_other_device_and_seldom_wait(option: str, tiny: Make) -> None:
    model = tiny(f"encoding={option}", *PLAIN)
    waits = check(model)
    may = "heads" in model.columns or any(isinstance(m, torch.nn.LSTM) for m in model.modules())
    assert set(waits) <= (ALLOWED if may else set())


@pytest.mark.parametrize("name", MODELS)
def test_models_meet_no_other_device_and_seldom_wait(name: str, tiny: Make) -> None:
    waits = check(tiny(*PLAIN, *MODELS[name]))
    assert set(waits) <= ALLOWED


class OnDevice(World):
    """A single process that trains on this device, whatever trainer.device says."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.its_own = device

    def device(self, name: str) -> torch.device:
        return self.its_own


@contextmanager
def training_on(device: torch.device, path: Path, **changes: Any) -> Iterator[Trainer]:
    """A trainer that stands before its first update."""
    with open_run(path, training.settings(**changes), OnDevice(device)) as run:
        trainer = Trainer(training.prepared(path.parent), run)
        trainer.start()
        with MetricsLog(run.path, 0, 9, trainer.options) as trainer.progress:
            yield trainer


def test_updates_do_not_wait(tmp_path: Path, pretend: Callable[..., None]) -> None:
    pretend(trains_in_bfloat16=True)
    with (
        pretended() as gpu,
        training_on(GPU, tmp_path / "run", trainer__precision="bfloat16", trainer__ema=0.9) as made,
    ):
        made.update()
        gpu.waits.clear()
        for _ in range(2):
            made.update()
        assert not gpu.waits
        made.finish_update()
        assert gpu.waits == {"device.py:read synchronize": 1}
        assert all(float(state["step"]) == 3 for state in made.optimizer.state.values())
        assert len(made.optimizer.state) == len(made.parameters)


def test_updates_that_are_not_finite_are_skipped_and_told_as_on_the_cpu(tmp_path: Path) -> None:
    """Loss, weights, their average and the report, which a GPU's host makes an update later."""
    chosen: dict[str, Any] = {"trainer__ema": 0.9, "trainer__log_every": 1}
    chosen |= {f"model__{part}dropout": 0.0 for part in ("", "attention_", "feedforward_")}
    chosen["model__tie"] = "none"  # wrapped tensors lose what they share when they are moved
    chosen["optim__eps"] = 1e-4  # gradients that are zero but for rounding move nothing

    def trained(device: torch.device, path: Path) -> tuple[list[Any], list[Tensor]]:
        with training_on(device, path, **chosen) as made:
            for step in range(1, 7):
                infinite = lambda grad: grad * float("inf")  # noqa: E731
                hook = made.model.output.weight.register_hook(infinite) if step in (2, 4) else None
                made.update()
                if hook is not None:
                    hook.remove()
            made.finish_update()
            assert made.nonfinite == 0
            means = [*made.evaluated.parameters()]
            tensors = [t.detach().cpu() for t in (*made.parameters, *means)]
        lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
        return [(x["kind"], x["step"], x.get("lines"), x.get("loss", 0.0)) for x in lines], tensors

    plain, weights = trained(CPU, tmp_path / "plain" / "run")
    with pretended():
        told, same = trained(GPU, tmp_path / "gpu" / "run")
    kinds = ["train", "skipped", "train", "skipped", "train", "train"]
    assert [(kind, step) for kind, step, *_ in plain] == [*zip(kinds, range(1, 7), strict=True)]
    for (*one, loss_of_one), (*other, loss_of_other) in zip(plain, told, strict=True):
        assert one == other and loss_of_one == pytest.approx(loss_of_other, rel=1e-4)
    for one, other in zip(weights, same, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shared", [True, False])
def test_sums_by_row_have_a_fixed_order_or_are_float32(
    shared: bool, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, at = torch.rand(2, 3, 5, 7).to(kind), torch.arange(7)
    index = (at - at[:5, None]).clamp(-2, 2)[None].expand(1 if shared else 2, -1, -1) + 2
    expected = sum_by_row(p.double(), index, 5).to(kind)
    added, kinds = Tensor.scatter_add_, []

    def spy(self: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
        kinds.append((self.dtype, values.dtype))
        return added(self, dim, index, values)

    monkeypatch.setattr(Tensor, "scatter_add_", spy)
    with pretended() as gpu:
        there = p.to(GPU), index.to(GPU)
        gpu.waits.clear()
        sums = sum_by_row(*there, 5)
        assert not gpu.waits
        torch.testing.assert_close(sums.cpu(), expected)
    assert kinds == ([] if shared else [(torch.float32, torch.float32)])


def test_dev_text_is_read_once(tiny: Make) -> None:
    model = tiny("encoding=absolute", *PLAIN)
    batches = [batch(model)] * 3
    off = torch.autocast("cpu", enabled=False)
    plain = validation.perplexity(model, batches, CPU, off)
    with pretended() as gpu:
        model.to(GPU)
        gpu.waits.clear()
        found = validation.perplexity(model, batches, GPU, off)
    assert gpu.waits == {"validation.py:perplexity _local_scalar_dense": 1}
    assert found == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize(
    "wait",
    [
        lambda t: t[t > 1],
        lambda t: t.nonzero(),
        lambda t: t.unique(),
        lambda t: t.tolist(),
        lambda t: bool((t > 1).any()),
        lambda t: t.cpu(),
        lambda t: torch.zeros(3).to(GPU),
        lambda t: torch.zeros(3).to(GPU, non_blocking=True),  # from memory that is not pinned
        lambda t: t[torch.tensor([0, 2])],
    ],
)
def test_waits_are_seen(wait: Callable[[Tensor], object]) -> None:
    with pretended() as gpu:
        t = torch.arange(3).to(GPU)
        gpu.waits.clear()
        wait(t)
        assert gpu.waits.total() == 1


def test_copies_of_pinned_memory_wait_for_nothing_and_no_devices_meet() -> None:
    with pretended() as gpu:
        there = torch.arange(3).pin_memory().to(GPU, non_blocking=True)
        assert not gpu.waits
        with pytest.raises(RuntimeError, match="a tensor of the CPU among those of the device"):
            there + torch.arange(3)
