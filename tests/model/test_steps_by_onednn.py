"""A step of no encoding takes much longer with products by oneDNN than with torch's own."""

import time
from collections.abc import Callable

import pytest
import torch

from nmt import build
from nmt.config import Settings
from nmt.model import example
from nmt.model.transformer import Transformer
from nmt.overrides.options import options_of
from nmt.training import loss

SIZES = ["model.dim=128", "model.feedforward_dim=512", "model.heads=4"]
VOCAB, ROWS, LENGTH = 800, 30, 20
ROUNDS = 4
SLOWER = 2.0  # times: most take .6 to .9, and where oneDNN has but a reference kernel, 20 and more


def seconds(model: Transformer) -> float:
    """CPU time of a pass and its gradients."""
    source, target = (example.ids(ROWS, LENGTH, VOCAB, seed) for seed in (1, 2))
    columns = example.columns(model.entries, source)
    began = time.thread_time()
    states = model.hidden(source, target, columns).states.flatten(0, 1)
    loss.smoothed(states, model.output, target.flatten(), 0.1)[0].backward()
    return time.thread_time() - began


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")
@pytest.mark.parametrize("option", options_of("encoding"))
def test_no_encoding_asks_onednn_for_what_it_is_slow_at(
    option: str, settings_of: Callable[..., Settings], pretend: Callable[..., None]
) -> None:
    model = build.transformer(settings_of(f"encoding={option}", *SIZES), VOCAB, VOCAB).train()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    taken: dict[str, list[float]] = {"onednn": [], "torch": []}
    try:
        for _ in range(ROUNDS):
            for library, times in taken.items():
                pretend(float32=library)
                times.append(seconds(model))
    finally:
        torch.set_num_threads(threads)
    assert min(taken["onednn"]) < SLOWER * min(taken["torch"])
