"""A trained model on disk: JSON and safetensors under a manifest, nothing that can run code.

A directory holds config.json, source.json and target.json (segmenter and vocabulary of each
side), facts.json and model.safetensors. It names no path of a machine and can be moved.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt import build, modelfiles
from nmt.config.settings import Settings, freeze, integers
from nmt.errors import Exit, UserError
from nmt.machine.device import pick
from nmt.model.transformer import Transformer
from nmt.modelfiles import CONFIG, WEIGHTS
from nmt.storage import manifest, modelpath
from nmt.storage.manifest import VerifiedDirectory
from nmt.text.side import Side

SMALL = 2**26  # numbers in tables of encodings that are allocated before shapes are compared


class Trained(NamedTuple):
    """A model with all that is needed to translate lines of text."""

    settings: Settings
    model: Transformer  # in evaluation mode
    source: Side
    target: Side
    facts: dict[str, Any]
    """Facts of the prepared corpus; step; dev_perplexity. `longest_source`: pieces of the
    longest source in training, None where it is unknown, as for imported models."""
    digest: str = ""  # SHA-256 of the manifest that it was read by; "": of no directory
    directory: Path | None = None  # that it was read from

    def __repr__(self) -> str:
        """One line; `facts` and `settings` have all the rest."""
        known = (f"{name} {value}" for name, value in self._summary().items())
        return f"<Trained {', '.join(known)}>"

    def _repr_html_(self) -> str:
        """The same and the plain facts as a table, which notebooks show."""
        plain = {k: v for k, v in self.facts.items() if isinstance(v, int | float | str)}
        rows = {**{key.replace("_", " "): v for key, v in plain.items()}, **self._summary()}
        cells = (f"<th>{escape(key)}</th><td>{escape(str(v))}</td>" for key, v in rows.items())
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"

    def _summary(self) -> dict[str, object]:
        data, model = self.settings.data, self.settings.model
        sides = (self.source, self.target)
        return {
            "languages": f"{data.source_language}-{data.target_language}",
            "encoding": "+".join(self.settings.encoding) or "none",
            "layers": f"{model.encoder_layers}+{model.decoder_layers} x {model.dim}",
            "parameters": f"{sum(p.numel() for p in self.model.parameters()):,}",
            "vocabularies": " and ".join(f"{len(side.vocabulary):,}" for side in sides),
            "longest source": self.facts.get("longest_source"),
            "step": self.facts.get("step"),
        }


def load(path: str | Path, device: str | torch.device = "cpu") -> Trained:
    """Read a run directory's best checkpoint, or one checkpoint directory.

    Every byte is compared with the manifest before it is parsed. Raises UserError: exit 66
    where nothing is, 65 where something else or something damaged is.
    """
    return modelfiles.reading(Path(path), lambda checkpoint: _load(checkpoint, device))


def _load(checkpoint: Path, device: str | torch.device) -> Trained:
    sealed = modelpath.open_model(checkpoint)
    settings = modelfiles.settings_of(sealed)
    source, target = modelfiles.sides_of(sealed)
    facts = modelfiles.facts_of(sealed)
    tensors = read_tensors(sealed, WEIGHTS)
    sizes = len(source.vocabulary), len(target.vocabulary)
    if not _is_small(settings, tensors):
        with modelfiles.in_file(sealed.path / CONFIG):
            shapes = build.meta_model(settings, *sizes)
        check_tensors(shapes, tensors, sealed.path / WEIGHTS)
    with modelfiles.in_file(sealed.path / CONFIG), build.Uninitialised():
        model = build.model(settings, source.vocabulary, target.vocabulary)
    set_weights(model, tensors, sealed.path / WEIGHTS)
    model = model.to(pick(device)).eval()
    return Trained(settings, model, source, target, facts, sealed.digest, checkpoint)


def _is_small(settings: Settings, tensors: dict[str, Tensor]) -> bool:
    """Whether a model takes little more memory than its tensors, by a cheap bound from above.

    Where it is in doubt, shapes are compared on the meta device, which takes a second or two.
    """
    model = settings.model
    layers = model.encoder_layers + model.decoder_layers
    body = layers * (8 * model.dim + 2 * model.feedforward_dim) * model.dim
    options = sorted(abs(n) for _, n in integers(settings.encoding, "encoding"))
    rows = 2 * math.prod(options[-2:]) + 1  # of a table; the largest ones grow with two options
    held = sum(tensor.numel() for tensor in tensors.values())
    return body <= 2 * held and layers * rows * model.dim <= SMALL


def is_saved(trained: Trained) -> bool:
    """Whether the weights are still those of the directory that a model was read from."""
    assert trained.directory is not None
    sealed = modelpath.open_model(trained.directory)
    saved, ours = read_tensors(sealed, WEIGHTS), weights(trained.model)
    return saved.keys() == ours.keys() and all(torch.equal(saved[n], ours[n]) for n in ours)


def check(trained: Trained) -> None:
    """Raise UserError (65) for what `load` would refuse once it is saved."""
    settings, model, source, target, facts, *_ = trained
    for name, value in facts.items():
        try:
            manifest.dump(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"facts[{name!r}]: {error}", Exit.DATA) from None
    modelfiles.check_facts(facts, Path("facts"))
    with build.Uninitialised():
        expected = build.model(settings, source.vocabulary, target.vocabulary)
    check_tensors(expected, untied(model), Path("model"))


def save(trained: Trained, path: Path, extra: Mapping[str, bytes] | None = None) -> None:
    """Write a model directory, at once or not at all; the path must not exist.

    `extra`: further files (name, bytes). Raises OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    settings, model, source, target, facts, *_ = trained
    files = _descriptions(settings, source, target, facts)
    with manifest.directory(path) as folder:
        for name, data in chain(files, (extra or {}).items()):
            (folder / name).write_bytes(data)
        write_tensors(weights(model), folder / WEIGHTS)


def write_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file without a copy of the tensors; raises OSError that names it."""
    path.touch()
    mode = path.stat().st_mode  # save_file renames a file that nobody else may read
    try:
        safetensors.torch.save_file(tensors, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:  # which has the system's error in its text alone
        if (code := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from None


def parts(
    settings: Settings, model: Transformer, source: Side, target: Side, facts: dict[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files (name, bytes) of a model directory, for `manifest.write`."""
    yield from _descriptions(settings, source, target, facts)
    yield WEIGHTS, safetensors.torch.save(weights(model))


def _descriptions(
    settings: Settings, source: Side, target: Side, facts: dict[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """All files but the weights."""
    yield CONFIG, manifest.dump(freeze(modelfiles.portable(settings)))
    yield modelfiles.SOURCE, manifest.dump(source.to_json())
    yield modelfiles.TARGET, manifest.dump(target.to_json())
    yield modelfiles.FACTS, manifest.dump(facts)


def weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return a model's tensors on the CPU; tied ones once, under their first name."""
    return {n: t.detach().cpu().contiguous() for n, t in untied(model).items()}


def untied(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return all that is saved of a module, parameters and buffers; tied ones as in `weights`."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:  # keep_vars: tied parameters are one object
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors


def set_weights(model: torch.nn.Module, tensors: dict[str, Tensor], where: Path) -> None:
    """Give a model the tensors that `weights` returned.

    Tied names follow, because they are the same parameter in the model. Raises what
    `check_tensors` does.
    """
    check_tensors(model, tensors, where)
    model.load_state_dict(tensors, strict=False)


def check_tensors(model: torch.nn.Module, tensors: dict[str, Tensor], where: Path) -> None:
    """Raise UserError (65) for other names, shapes or number formats than the model's."""
    expected = untied(model)
    if different := sorted(set(expected) ^ set(tensors)):
        kind = "is missing" if different[0] in expected else "belongs to another model"
        raise UserError(f"{where}: the tensor {different[0]} {kind}", Exit.DATA)
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            raise UserError(
                f"{where}: {name} is {list(tensor.shape)} {tensor.dtype}, "
                f"its config asks for {list(expected[name].shape)} {expected[name].dtype}",
                Exit.DATA,
            )


def read_tensors(sealed: VerifiedDirectory, name: str) -> dict[str, Tensor]:
    """Map a safetensors file that the manifest vouches for into memory, which holds no copy."""
    try:
        return safetensors.torch.load_file(sealed.verified(name))
    except OSError as error:
        raise UserError(f"{sealed.path / name}: {error.strerror or error}", Exit.DATA) from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{sealed.path / name}: no safetensors file ({error})", Exit.DATA) from None
