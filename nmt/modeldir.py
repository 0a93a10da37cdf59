"""A trained model on disk: JSON and safetensors under a manifest, nothing that can run code.

A directory holds config.json, source.json and target.json (segmenter and vocabulary of each
side), facts.json and model.safetensors. It names no path of a machine and can be moved.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt import build, config
from nmt.data.side import Side
from nmt.errors import Exit, UserError, visible
from nmt.machine.device import pick
from nmt.model.transformer import Transformer
from nmt.schema import LARGEST
from nmt.storage import manifest, modelpath
from nmt.storage.manifest import VerifiedDirectory
from nmt.storage.modelpath import SETTINGS_BESIDE as SETTINGS_BESIDE

T = TypeVar("T")
CONFIG, SOURCE, TARGET, FACTS = "config.json", "source.json", "target.json", "facts.json"
WEIGHTS = "model.safetensors"
VOCABULARY_LIMIT = 1 << 28  # bytes of source.json and target.json
SMALL = 2**26  # numbers in tables of encodings that are allocated before shapes are compared
USUAL_LENGTH = 100  # pieces of the longest source in training where that is unknown: conf/ has it
LONGEST = 500  # characters of a message about a package, which decides on some of them

log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """A model with all that is needed to translate lines of text."""

    settings: config.Settings
    model: Transformer  # in evaluation mode
    source: Side
    target: Side
    facts: dict[str, Any]
    """Facts of the prepared corpus; step; dev_perplexity. `longest_source`: pieces of the
    longest source in training, None where it is unknown, as for imported models."""
    digest: str = ""  # SHA-256 of the manifest that it was read by; "": of no directory

    def __repr__(self) -> str:
        """One line for a notebook; `facts` and `settings` have all the rest."""
        data, encoding = self.settings.data, "+".join(self.settings.encoding) or "none"
        numbers = sum(p.numel() for p in self.model.parameters())
        pieces = " and ".join(f"{len(side.vocabulary):,}" for side in (self.source, self.target))
        return (
            f"<Trained {data.source_language}-{data.target_language}, encoding {encoding}, "
            f"{numbers:,} parameters, vocabularies of {pieces} pieces, "
            f"step {self.facts.get('step')}>"
        )


def load(path: str | Path, device: str = "cpu") -> Trained:
    """Read a run directory's best checkpoint, or one checkpoint directory.

    Every byte is compared with the manifest before it is parsed. Raises UserError: exit 66
    where nothing is, 65 where something else or something damaged is.
    """
    return reading(Path(path), lambda checkpoint: _load(checkpoint, device))


def reading(path: Path, read: Callable[[Path], T]) -> T:
    """Read the checkpoint directory that a path denotes, which training may remove during that.

    Then the one that the path denotes now is read instead.
    """
    while True:
        checkpoint = modelpath.locate(path)
        try:
            return read(checkpoint)
        except (UserError, OSError):
            if checkpoint == path or checkpoint.exists():
                raise  # was named, or is wrong itself


def _load(checkpoint: Path, device: str) -> Trained:
    sealed = modelpath.open_model(checkpoint)
    settings = _settings(sealed)
    source, target = _both_sides(sealed)
    facts = _facts(sealed)
    tensors = read_tensors(sealed, WEIGHTS)
    sizes = len(source.vocabulary), len(target.vocabulary)
    shapes = None
    with _in_file(sealed.path / CONFIG):
        if not _is_small(settings, tensors):
            shapes = build.meta_model(settings, *sizes)
    if shapes is not None:
        check_tensors(shapes, tensors, sealed.path / WEIGHTS)
    with _in_file(sealed.path / CONFIG):
        model = build.transformer(settings, *sizes)
    set_weights(model, tensors, sealed.path / WEIGHTS)
    model = model.to(pick(device)).eval()
    return Trained(settings, model, source, target, facts, sealed.digest)


def _is_small(settings: config.Settings, tensors: dict[str, Tensor]) -> bool:
    """Whether a model takes little more memory than its tensors, by a cheap bound from above.

    Where it is in doubt, shapes are compared on the meta device, which takes a second or two.
    """
    model = settings.model
    layers = model.encoder_layers + model.decoder_layers
    body = layers * (8 * model.dim + 2 * model.feedforward_dim) * model.dim
    options = sorted(abs(n) for _, n in config.integers(settings.encoding, "encoding"))
    rows = 2 * math.prod(options[-2:]) + 1  # of a table; the largest ones grow with two options
    held = sum(tensor.numel() for tensor in tensors.values())
    return body <= 2 * held and layers * rows * model.dim <= SMALL


def sides(path: str | Path) -> tuple[Side, Side]:
    """Read the source and target side of a model alone; raises what `load` does."""
    return reading(Path(path), lambda checkpoint: _both_sides(modelpath.open_model(checkpoint)))


def settings(path: str | Path) -> config.Settings:
    """Read the settings of a model alone; raises what `load` does."""
    return reading(Path(path), lambda checkpoint: _settings(modelpath.open_model(checkpoint)))


def facts(path: str | Path) -> dict[str, Any]:
    """Read the facts of a model alone, `Trained.facts`; raises what `load` does."""
    return reading(Path(path), lambda checkpoint: _facts(modelpath.open_model(checkpoint)))


def weights_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a model's weights, as its manifest says; raises what `load` does."""
    sealed = modelpath.open_model(modelpath.locate(Path(path)))
    entry = sealed.files.get(WEIGHTS)
    if not isinstance(entry, dict):
        raise UserError(f"{sealed.path}: lists no {WEIGHTS}; it is no model", Exit.DATA)
    return str(entry.get("sha256"))


def save(trained: Trained, path: Path, extra: Mapping[str, bytes] | None = None) -> None:
    """Write a model directory, at once or not at all; the path must not exist.

    `extra`: further files (name, bytes). Raises OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    settings, model, source, target, facts, _ = trained
    files = parts(settings, model, source, target, facts)
    manifest.write(path, chain(files, (extra or {}).items()))


def parts(
    settings: config.Settings, model: Transformer, source: Side, target: Side, facts: dict[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files (name, bytes) of a model directory, for `manifest.write`."""
    yield CONFIG, manifest.dump(config.freeze(portable(settings)))
    yield SOURCE, manifest.dump(source.to_json())
    yield TARGET, manifest.dump(target.to_json())
    yield FACTS, manifest.dump(facts)
    yield WEIGHTS, safetensors.torch.save(weights(model))


def portable(settings: config.Settings) -> config.Settings:
    """Return settings whose paths are reduced to file names, for another machine."""
    known = {f.name for f in fields(settings.data)}
    values = {key: getattr(settings.data, key) for key in config.PATHS if key in known}
    cut: dict[str, Any] = {key: value and Path(value).name for key, value in values.items()}
    if isinstance(settings.data, config.Files):
        cut["columns"] = {
            name: replace(
                column,
                train=Path(column.train).name,
                dev=Path(column.dev).name,
                test=column.test and Path(column.test).name,
            )
            for name, column in settings.data.columns.items()
        }
    start = settings.trainer.init_from
    trainer = replace(settings.trainer, init_from=start and Path(start).name)
    return replace(settings, data=replace(settings.data, **cut), trainer=trainer)


def weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return a model's tensors on the CPU; tied ones once, under their first name."""
    return {n: t.detach().cpu().contiguous() for n, t in _untied(model).items()}


def _untied(model: torch.nn.Module) -> dict[str, Tensor]:
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
    expected = _untied(model)
    if different := sorted(set(expected) ^ set(tensors)):
        kind = "is missing" if different[0] in expected else "belongs to another model"
        raise UserError(f"{where}: the tensor {different[0]} {kind}", Exit.DATA)
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            raise UserError(
                f"{where}: {name} is {list(tensor.shape)} {tensor.dtype}, "
                f"config.json asks for {list(expected[name].shape)} {expected[name].dtype}",
                Exit.DATA,
            )


def read_tensors(sealed: VerifiedDirectory, name: str) -> dict[str, Tensor]:
    """Read a safetensors file that the manifest vouches for."""
    data = sealed.read(name)
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{sealed.path / name}: no safetensors file ({error})", Exit.DATA) from None


def _settings(sealed: VerifiedDirectory) -> config.Settings:
    plain = sealed.json(CONFIG)
    with _in_file(sealed.path / CONFIG):
        return config.thaw(plain)


def _facts(sealed: VerifiedDirectory) -> dict[str, Any]:
    facts = sealed.json(FACTS)
    longest = facts.get("longest_source", "")
    known = isinstance(longest, int) and 0 <= longest <= LARGEST
    if not known and longest is not None:
        raise UserError(
            f"{sealed.path / FACTS}: longest_source={visible(longest, 20)}: expected pieces "
            "of the longest source in training, or null where that is unknown",
            Exit.DATA,
        )
    return facts


def _both_sides(sealed: VerifiedDirectory) -> tuple[Side, Side]:
    return _side(sealed, SOURCE), _side(sealed, TARGET)


def _side(sealed: VerifiedDirectory, name: str) -> Side:
    plain = sealed.json(name, VOCABULARY_LIMIT)
    try:
        with _in_file(sealed.path / name):
            return Side.from_json(plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{sealed.path / name}: malformed ({error!r})", Exit.DATA) from None


@contextmanager
def _in_file(path: Path) -> Iterator[None]:
    """Let a UserError name the file whose content is wrong, with exit code 65."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {visible(error, LONGEST)}", Exit.DATA) from None
