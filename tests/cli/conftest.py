"""nmt-translate in this process, and a model on the disk whose weights make it copy."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from nmt import build, modeldir
from nmt.checks import parity
from nmt.cli import translate
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import BOS, Vocabulary
from tests import composing

Run = Callable[..., tuple[int, bytes, str]]
ENDLESS = "\u221e"
WORDS = [*(f"w{number}" for number in range(40)), ENDLESS]
MERGES = [*(f"{word[:-1]} {word[-1]}</w>" for word in WORDS[:40]), "w 1", "w 2", "w 3"]
WHOLE_WORDS = Side(Bpe(Tokenizer("nfc", "none", "de"), MERGES, WORDS), Vocabulary(WORDS))
LINES = [f"w{i % 40} w{i % 7}" for i in range(20)]
LINES[1] = LINES[13] = f"{ENDLESS} w1"  # cut at the limit, and counted


@pytest.fixture(scope="session")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says word n of the source at step n, and then its end; ENDLESS, for ever."""
    size = len(WHOLE_WORDS.vocabulary)
    settings = composing.settings_of(
        *(f"model.dim={size}", "model.heads=1", "model.tie=none", "model.feedforward_dim=1"),
        *("model.encoder_layers=1", "model.decoder_layers=1", "decode.window=3"),
        *("encoding=scalar_relative", "encoding.scalar_relative.where=[cross]"),
        *("decode.beam_size=2", "decode.max_length_ratio=1", "decode.max_length_offset=3"),
    )
    model: Any = build.transformer(settings, size, size).eval()
    cross, (distances,) = model.decoder.layers[0].cross, model.cross_encodings
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        for linear in (model.source_embedding, cross.value, cross.out, model.output):
            linear.weight += torch.eye(size)
        model.output.bias -= torch.arange(size) / 50  # no two words are as probable
        distances.weight -= 20 * torch.arange(-255, 256).abs()[:, None]
        cross.query.bias[0], cross.key.weight[0, -1] = 1, 1e4  # more than the farthest
    path = tmp_path_factory.mktemp("copying") / "model"
    modeldir.save(Trained(settings, model, WHOLE_WORDS, WHOLE_WORDS, {"longest_source": 30}), path)
    return path


def at_each_batch(act: Callable[[Tensor], object]) -> RemovableHandle:
    """In a `with` block, show the source ids of each batch before the model reads them."""

    def look(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, nn.Embedding) and inputs[0].shape[1] > 1 and inputs[0][0, 0] != BOS:
            act(inputs[0])

    return register_module_forward_pre_hook(look)


@pytest.fixture
def float32_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let --check decode in float32 alone: bfloat16 takes as long again."""
    monkeypatch.delitem(parity.BOUNDS, "bfloat16")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Words and stdin -> exit code, stdout, stderr."""

    def run(*words: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = translate.main(list(words))
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


@pytest.fixture
def nmt_translate(command: Run, copying: Path) -> Run:
    """The command on a model that copies."""
    return lambda *words, stdin=b"": command(str(copying), *words, stdin=stdin)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of LINES."""
    path = tmp_path / "in"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path
