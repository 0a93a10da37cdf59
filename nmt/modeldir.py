"""A model on disk: JSON and safetensors under a manifest, nothing that can run code.

A directory holds config.json, source.json and target.json (segmenter and vocabulary of each
side), facts.json and model.safetensors. It names no path of a machine and can be moved. What other
toolkits write is refused by name. All but the weights is read without torch.
"""

import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from safetensors import SafetensorError

from nmt import foreign
from nmt.config import check
from nmt.config.settings import Settings, freeze, integers, is_path, thaw
from nmt.errors import Exit, UserError, visible
from nmt.system import manifest
from nmt.system.manifest import JSON_LIMIT, VerifiedDirectory
from nmt.text.side import Side

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from nmt.model.transformer import Transformer

T = TypeVar("T")
CONFIG, SOURCE, TARGET, FACTS = "config.json", "source.json", "target.json", "facts.json"
WEIGHTS = "model.safetensors"
SETTINGS_BESIDE = "settings.json"  # next to a model that was written for another engine
CHECKPOINTS = "checkpoints"  # in a run directory, which has a config.json of its own
BEST = "best"  # in a run directory: the name of its best checkpoint
USUAL_LENGTH = 100  # pieces of the longest source in training where that is unknown: conf/ has it
_STEP = re.compile(r"step-[0-9]{8,}")

log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """A model with all that is needed to translate lines of text."""

    settings: Settings
    model: "Transformer"  # in evaluation mode
    source: Side
    target: Side
    facts: dict[str, Any]
    """Facts of the prepared corpus; step; dev_perplexity. `longest_source`: pieces of the
    longest source in training, None where it is unknown, as for imported models."""
    digest: str = ""  # SHA-256 of the manifest that it was read by; "": of no directory
    directory: Path | None = None  # that it was read from

    def __repr__(self) -> str:
        """One line for notebooks, without the modules of the model."""
        data, model = self.settings.data, self.settings.model
        languages = f"{data.source_language}-{data.target_language}"
        encoding = "+".join(self.settings.encoding) or "none"
        layers = f"{model.encoder_layers}+{model.decoder_layers} layers of {model.dim}"
        return f"<Trained {languages}, {encoding}, {layers}, step {self.facts.get('step')}>"


def locate(path: Path) -> Path:
    """Return the checkpoint directory that a path means; a run means its best, else its newest."""
    if not path.exists():
        raise UserError(f"{path}: no such directory; give a run or a checkpoint", Exit.NO_INPUT)
    if not path.is_dir():
        raise UserError(f"{path}: not a model directory; nmt never unpickles a file", Exit.DATA)
    if (path / manifest.NAME).exists() or not (path / CHECKPOINTS).is_dir():
        return path
    pointer, steps = path / BEST, checkpoints(path / CHECKPOINTS)
    if not steps:
        raise UserError(f"{path}: this run has no checkpoint yet", Exit.NO_INPUT)
    name = pointer.read_bytes().strip() if pointer.is_file() else b""
    if named := [step for step in steps if step.name.encode() == name]:
        return named[0]
    if os.path.lexists(pointer) or len(steps) > 1:
        log.warning("%s: names no checkpoint; using the newest, %s", pointer, steps[-1].name)
    return steps[-1]


def checkpoints(directory: Path) -> list[Path]:
    """List the checkpoint directories, oldest first; none if the directory does not exist."""
    steps = [p for p in directory.glob("step-*") if _STEP.fullmatch(p.name) and p.is_dir()]
    return sorted(steps, key=lambda p: int(p.name.removeprefix("step-")))


def open_model(path: Path) -> VerifiedDirectory:
    """Open a model directory; UserError (65) where it is none, or holds a model for other tools."""
    if (path / SETTINGS_BESIDE).exists():
        reason = "written by nmt-export for another engine; give the model itself"
        raise UserError(f"{path}: {reason}", Exit.DATA)
    kind = foreign.recognise(path)
    if kind is not None and kind is not foreign.OWN:
        advice = kind.advice.format(path=path)
        raise UserError(f"{path}: {kind.name}, no model directory of nmt; {advice}", Exit.DATA)
    return VerifiedDirectory(path)


def reading(path: str | Path, read: Callable[[Path], T]) -> T:
    """Read the checkpoint directory that a path denotes.

    If training removes it meanwhile, the one that the path denotes then is read instead.
    """
    path = Path(path)
    while True:
        checkpoint = locate(path)
        try:
            return read(checkpoint)
        except (UserError, OSError):
            if checkpoint == path or checkpoint.exists():
                raise  # was named, or is wrong itself


def read_config(run: Path) -> Settings:
    """The settings of a run; UserError (65) that names config.json if it cannot be read."""
    plain = manifest.read(run / CONFIG)
    with in_file(run / CONFIG):
        return thaw(plain)


def read_settings(path: str | Path) -> Settings:
    return reading(path, lambda checkpoint: settings_of(open_model(checkpoint)))


def read_sides(path: str | Path) -> tuple[Side, Side]:
    return reading(path, lambda checkpoint: sides_of(open_model(checkpoint)))


def read_facts(path: str | Path) -> dict[str, Any]:
    return reading(path, lambda checkpoint: facts_of(open_model(checkpoint)))


def weights_sha256(path: str | Path) -> str:
    """The SHA-256 of a model's weights, as its manifest says."""
    return reading(path, lambda checkpoint: open_model(checkpoint).sha256(WEIGHTS))


def settings_of(sealed: VerifiedDirectory, name: str = CONFIG) -> Settings:
    return _parse(sealed, name, thaw)


def sides_of(sealed: VerifiedDirectory) -> tuple[Side, Side]:
    source, target = (_parse(sealed, n, Side.from_json, 1 << 28) for n in (SOURCE, TARGET))
    return source, target


def facts_of(sealed: VerifiedDirectory) -> dict[str, Any]:
    """The facts of an opened model directory; UserError (65) for a checkpoint of another step."""
    facts, path = _parse(sealed, FACTS, _checked_facts), sealed.path
    step = visible(facts.get("step"), 20)
    if path.parent.name == CHECKPOINTS and path.name != f"step-{step:0>8}":
        raise UserError(f"{path}: damaged; it holds step {step}", Exit.DATA)
    return facts


def _checked_facts(facts: dict[str, Any]) -> dict[str, Any]:
    check.fit(check.NonNegativeInt | None, facts.get("longest_source", "?"), "longest_source")
    return facts


def _parse(
    sealed: VerifiedDirectory, name: str, parse: Callable[[Any], T], limit: int = JSON_LIMIT
) -> T:
    plain = sealed.json(name, limit)
    with in_file(sealed.path / name):
        return parse(plain)


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Let a UserError name the file whose content is wrong, with exit code 65."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {visible(error, 500)}", Exit.DATA) from None


def load(path: str | Path, device: "str | torch.device" = "cpu") -> Trained:
    """Read a run directory's best checkpoint, or one checkpoint directory.

    Every byte is compared with the manifest before it is parsed. Raises UserError: 66 if nothing
    is there, 65 if it is damaged or no model.
    """
    return reading(path, lambda checkpoint: _load(checkpoint, device))


def _load(checkpoint: Path, device: "str | torch.device") -> Trained:
    from nmt.system.device import pick

    sealed = open_model(checkpoint)
    settings, sides, facts = settings_of(sealed), sides_of(sealed), facts_of(sealed)
    tensors = read_tensors(sealed, WEIGHTS)
    with in_file(checkpoint):
        model = model_of(settings, *sides, tensors, Path(WEIGHTS))
    return Trained(settings, model.to(pick(device)), *sides, facts, sealed.digest, checkpoint)


def model_of(
    settings: Settings, source: Side, target: Side, tensors: "dict[str, Tensor]", path: Path
) -> "Transformer":
    """Make the model of these tensors, in evaluation mode; UserError (65) if they do not fit."""
    from nmt import build

    size, held = settings.model, sum(tensor.numel() for tensor in tensors.values())
    options = sorted(max(1, abs(n)) for _, n in integers(settings.encoding, "encoding"))
    table = math.prod([*options[-2:], size.dim, size.encoder_layers + size.decoder_layers])
    if table > 2**25 or size.dim * max(size.dim, size.feedforward_dim) > held:
        # the meta device takes no memory, but a second or two
        shapes = build.meta_model(settings, len(source.vocabulary), len(target.vocabulary))
        check_tensors(shapes, tensors, path)
    with build.Uninitialised():
        model = build.model(settings, source.vocabulary, target.vocabulary)
    set_weights(model, tensors, path)
    return model.eval()


def is_saved(trained: Trained) -> bool:
    """Whether a model has the weights of the directory that it was read from."""
    import torch

    assert trained.directory is not None
    saved, current = read_tensors(open_model(trained.directory), WEIGHTS), weights(trained.model)
    return saved.keys() == current.keys() and all(torch.equal(saved[n], current[n]) for n in saved)


def check_model(trained: Trained) -> None:
    """Raise UserError (65) for a model that could be saved but not loaded."""
    settings, model, source, target, facts, *_ = trained
    for name, value in facts.items():
        try:
            manifest.dump(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"facts[{name!r}]: {error}", Exit.DATA) from None
    with in_file(Path("facts")):
        _checked_facts(facts)
    model_of(settings, source, target, weights(model), Path("model"))


def save(trained: Trained, path: Path, extra: Mapping[str, bytes] | None = None) -> None:
    """Write a model directory, at once or not at all; the path must not exist.

    `extra`: further files (name, bytes). Raises OSError where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest.write(path, chain(parts(*trained[:5]), (extra or {}).items()))


def parts(
    settings: Settings, model: "Transformer", source: Side, target: Side, facts: dict[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files (name, bytes) of a model directory, for `manifest.write`."""
    yield CONFIG, manifest.dump(freeze(portable(settings)))
    yield SOURCE, manifest.dump(source.to_json())
    yield TARGET, manifest.dump(target.to_json())
    yield FACTS, manifest.dump(facts)
    yield WEIGHTS, manifest.dump_tensors(weights(model))


def portable(settings: Settings) -> Settings:
    """Return settings whose paths are reduced to file names, for another machine."""

    def reduced(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {
                name: reduced(inner, check.join_key(key, name)) for name, inner in value.items()
            }
        return Path(value).name if value and is_path(key) else value

    return thaw(reduced(freeze(settings)))


def weights(model: "torch.nn.Module") -> "dict[str, Tensor]":
    """Return a model's tensors on the CPU; tied ones once, under their first name."""
    return {n: t.detach().cpu().contiguous() for n, t in untie(model).items()}


def untie(model: "torch.nn.Module") -> "dict[str, Tensor]":
    """Return all that is saved of a module, parameters and buffers; tied ones as in `weights`."""
    first: dict[int, str] = {}
    tensors = model.state_dict(keep_vars=True)  # in which tied parameters are one object
    return {n: t for n, t in tensors.items() if first.setdefault(id(t), n) == n}


def set_weights(model: "torch.nn.Module", tensors: "dict[str, Tensor]", path: Path) -> None:
    """Set a model's weights by name; UserError (65) unless names and shapes are the model's."""
    check_tensors(model, tensors, path)
    model.load_state_dict(tensors, strict=False)  # without tied names: these are the same parameter


def check_tensors(model: "torch.nn.Module", tensors: "dict[str, Tensor]", path: Path) -> None:
    """Raise UserError (65) for other names, shapes or number formats than the model's."""
    expected = untie(model)
    if different := sorted(set(expected) ^ set(tensors)):
        kind = "is missing" if different[0] in expected else "belongs to another model"
        raise UserError(f"{path}: the tensor {visible(different[0], 80)} {kind}", Exit.DATA)
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            raise UserError(
                f"{path}: {name} is {list(tensor.shape)} {tensor.dtype}, "
                f"its config asks for {list(expected[name].shape)} {expected[name].dtype}",
                Exit.DATA,
            )


def read_tensors(sealed: VerifiedDirectory, name: str) -> "dict[str, Tensor]":
    """Map a safetensors file that the manifest vouches for into memory, which holds no copy."""
    import safetensors.torch

    try:
        return safetensors.torch.load_file(sealed.verify_file(name))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise UserError(f"{sealed.path / name}: no safetensors file ({error})", Exit.DATA) from None
