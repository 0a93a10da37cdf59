"""What many tests need: one thread, and tiny models with any encoding."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from torch import Tensor

from nmt import build
from nmt.checks import example
from nmt.config.settings import Settings
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system import machine
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import Vocabulary
from tests import composing

for inherited in ("MAKEFLAGS", "MAKELEVEL"):  # else a test's own make is one of `make test`
    os.environ.pop(inherited, None)

# other work may slow a machine down, so that no example has a deadline
hypothesis.settings.register_profile("fast", deadline=None, max_examples=30)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=300)

gc.disable()  # until all is imported and collected, of which nothing is garbage

TOGETHER = (  # files whose fixtures cost seconds; see below
    *("test_keys", "test_evaluate_runs", "test_whole", "test_distributed", "test_damaged_run"),
    *("test_ema", "test_ctranslate2_engine"),
    *("test_scoring", "test_text", "test_page"),
)
WITH_TRANSFORMERS = ("test_oracles", "test_card_code", "test_marian_read", "test_marian_export")
TINY = (
    "model.dim=16",
    "model.feedforward_dim=24",
    "model.heads=2",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
)


def pytest_configure(config: pytest.Config) -> None:
    """Properties are tried on more examples where slow tests are asked for."""
    slow = "slow" in config.option.markexpr.replace("not slow", "", 1)
    hypothesis.settings.load_profile("slow" if slow else "fast")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that one process has as a whole begin; at the end the other one would wait."""
    items.sort(key=lambda item: item.path.stem not in (*TOGETHER, *WITH_TRANSFORMERS))


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among what was there before the first test."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests one by one, but files whose fixtures cost seconds as a whole.

    And all files that import transformers to one process: that takes it seconds.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Handing(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if Path(path).stem in WITH_TRANSFORMERS:
                return "transformers"
            return path if Path(path).stem in TOGETHER else nodeid

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            scopes = self.assigned_work[node]
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(scopes[scope].values()):
                del scopes[scope]  # else all that were done are counted after each test

    return Handing(config, log)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Sums of several threads differ in their last bits."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Without this, a run of three updates waits longer than it works; tests of the order spy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def compose_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let all processes of a parallel run share the settings that one of them composed.

    A test that runs pytest hands its environment down, so the environment does not tell: that run
    would share the settings of every run on this machine, those of other versions, too.
    """
    if hasattr(request.config, "workerinput"):
        composing.SHARED.append(tmp_path_factory.getbasetemp().parent)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the record of this machine say something else, as `pretend(bfloat16=3.0)`."""

    def change(**fields: Any) -> None:
        monkeypatch.setattr(machine, "_machine", replace(machine.this_machine(), **fields))

    return change


@pytest.fixture
def settings_of() -> Callable[..., Settings]:
    """Settings of a tiny model, from arguments of a command line."""

    def make(*arguments: str) -> Settings:
        return composing.settings_of(*TINY, *arguments)

    return make


@pytest.fixture
def tiny() -> Callable[..., Transformer]:
    """A tiny model in eval mode, from arguments; every parameter away from zero.

    It is built once; each test gets a copy of its own.
    """

    def make(*arguments: str, seed: int = 0, vocab: int = 30) -> Transformer:
        model = deepcopy(built(arguments, seed, vocab))
        torch.manual_seed(seed)  # what is drawn next depends on no other test
        return model

    return make


@pytest.fixture
def of_letters(
    tiny: Callable[..., Transformer], settings_of: Callable[..., Settings]
) -> Callable[..., Trained]:
    """Overrides -> a model of letters; the more it is shaken, the surer it is of what it says."""

    def make(
        *overrides: str, letters: Sequence[str] = "abcdefghi", seed: int = 0, shake: float = 0.0
    ) -> Trained:
        side = Side(Bpe(Tokenizer("nfc", "none", "de"), [], letters), Vocabulary(letters))
        model = tiny(*overrides, seed=seed, vocab=len(side.vocabulary))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn(p.shape) * shake)
        return Trained(settings_of(*overrides), model, side, side, {"longest_source": 30})

    return make


@cache
def built(arguments: tuple[str, ...], seed: int, vocab: int) -> Transformer:
    """The model of the fixture `tiny`."""
    return moved(composing.settings_of(*TINY, *arguments), seed, vocab)


def moved(
    settings: Settings, seed: int = 0, vocab: int = 30, target: int | None = None
) -> Transformer:
    """A model in eval mode, every parameter away from where it starts."""
    torch.manual_seed(seed)
    model = build.transformer(settings, vocab, vocab if target is None else target)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return model.eval()


@pytest.fixture
def ids() -> Callable[..., Tensor]:
    """Random token ids [rows, length] above the special ones."""

    def make(rows: int, length: int, seed: int = 0, vocab: int = 30) -> Tensor:
        return example.ids(rows, length, vocab, seed)

    return make


BODY = 44_140_544  # 6+6 layers, dim 512, ff 2048, biases, 3 norms a decoder layer, final norms


@pytest.fixture
def added_at_base() -> Callable[..., int]:
    """How many parameters an encoding adds to a model of base size, from arguments."""

    def count(*arguments: str, vocab: int = 8) -> int:
        size = ["model.dim=512", "model.heads=8", "model.feedforward_dim=2048"]
        size += ["model.encoder_layers=6", "model.decoder_layers=6"]
        settings = composing.settings_of(*size, *arguments)
        with torch.device("meta"):
            model = build.transformer(settings, vocab, vocab)
        return sum(p.numel() for p in model.parameters()) - 3 * vocab * 512 - vocab - BODY

    return count


def close(a: Any, b: Any, atol: float = 1e-5) -> bool:
    """Whether two tensors agree everywhere."""
    return bool(torch.allclose(a, b, rtol=0, atol=atol))
