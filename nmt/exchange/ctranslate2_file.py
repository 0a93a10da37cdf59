"""The files of a CTranslate2 directory: model.bin, config.json and the vocabularies.

model.bin (`ModelSpec._serialize` of CTranslate2 4.8) holds, little-endian: a version, the name and
revision of the specification, the variables (name, shape, type, bytes), and names that stand for
other variables. A name has its length before it and a zero byte behind, both counted.
"""

import io
import logging
import math
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.errors import UserError
from nmt.exchange.interface import invalid
from nmt.foreign import CTRANSLATE2_WEIGHTS
from nmt.system import manifest

VERSION = 6  # of the file format
SPECIFICATION = ("TransformerSpec", 7)  # name and revision
IGNORED = {"decoder/alignment_layer", "decoder/alignment_heads"}  # of no use here
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by number
AGAIN = "convert the original model with CTranslate2 4"

log = logging.getLogger(__name__)


@dataclass
class CTranslate2Files:
    """The contents of the files, and which variables were used."""

    directory: Path
    config: dict[str, Any]
    source: list[str]  # names of the ids
    target: list[str]
    variables: dict[str, NDArray[Any]]  # scalars have no dimension
    used: set[str] = field(default_factory=lambda: {*IGNORED})

    def layers(self, stack: str) -> int:
        """The number of layers of a stack."""
        matches = (re.match(f"{stack}/layer_([0-9]+)/", name) for name in self.variables)
        return len({match[1] for match in matches if match})

    def are_equal(self, one: str, other: str) -> bool:
        """Whether two variables exist and hold the same numbers."""
        if not {one, other} <= self.variables.keys():
            return False
        return np.array_equal(self.variables[one], self.variables[other])

    def number(self, name: str, default: int) -> int:
        """A scalar."""
        self.used.add(name)
        return int(self.variables.get(name, default))

    def scale(self, stack: str, dim: int) -> float:
        """The factor of a stack's embeddings, divided by sqrt(dim), which is nmt's factor."""
        self.used.add(name := f"{stack}/scale_embeddings")
        value = self.variables.get(name, np.int8(1))
        if value.dtype == np.int8:  # a flag: multiplied by sqrt(dim), or not
            return 1.0 if value else dim**-0.5
        return 1.0 if math.isclose(value, dim**0.5, rel_tol=1e-6) else float(value) * dim**-0.5

    def tensor(self, name: str) -> Tensor:
        """A tensor; UserError (65) if it is missing."""
        if name not in self.variables or not self.variables[name].ndim:
            raise self.error(f"has no {name}")
        self.used.add(name)
        return torch.from_numpy(self.variables[name].copy())

    def error(self, what: str) -> UserError:
        return invalid(self.directory / CTRANSLATE2_WEIGHTS, what)

    def refuse_rest(self) -> None:
        """Raise UserError (65) for a variable that was not used."""
        if rest := self.variables.keys() - self.used:
            raise self.error(f"{min(rest)} belongs to a part that no model of nmt has")


def read(directory: Path) -> CTranslate2Files:
    """Read a directory, with weights in float32; UserError (65) for an unreadable file."""
    path = directory / CTRANSLATE2_WEIGHTS
    file = io.BytesIO(manifest.read_bytes(path))
    try:
        variables = _dequantise(_read_variables(file, path))
    except (struct.error, ValueError, KeyError, IndexError):
        raise invalid(path, "damaged or incomplete") from None
    source, target = (_read_vocabulary(directory, side) for side in ("source", "target"))
    config = manifest.read(directory / "config.json", None)
    return CTranslate2Files(directory, config, source, target, variables)


def _read_vocabulary(directory: Path, side: str) -> list[str]:
    """The names of a side's ids: a JSON list, or one name a line in older directories."""
    names = (f"{name}_vocabulary.{end}" for name in ("shared", side) for end in ("json", "txt"))
    path = next((directory / name for name in names if (directory / name).exists()), None)
    if path is None:
        raise invalid(directory, f"no {side}_vocabulary.json and no shared_vocabulary.json")
    data = manifest.read_bytes(path)
    if path.suffix == ".txt":
        return data.decode(errors="replace").removesuffix("\n").split("\n")
    pieces = manifest.parse(data, path)
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise invalid(path, "expected a list of pieces")
    return pieces


def _read_variables(file: io.BytesIO, path: Path) -> dict[str, NDArray[Any]]:
    """The variables, also under their aliases; a damaged file raises any error."""
    if (version := _read_number(file, "I")) != VERSION:
        raise invalid(path, f"format {version}; nmt reads {VERSION}: {AGAIN}")
    specification = (_read_name(file), _read_number(file, "I"))
    if specification != SPECIFICATION:
        raise invalid(path, f"{specification}; only {SPECIFICATION} can be read: {AGAIN}")
    variables: dict[str, NDArray[Any]] = {}
    for _ in range(_read_number(file, "I")):
        name = _read_name(file)
        variables[name] = _read_array(file)
        if not np.isfinite(variables[name]).all():
            raise invalid(path, f"{name} holds numbers that are not finite")
    for _ in range(_read_number(file, "I")):
        alias = _read_name(file)
        variables[alias] = variables[_read_name(file)]
    return variables


def _read_number(file: io.BytesIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0])


def _read_name(file: io.BytesIO) -> str:
    return file.read(_read_number(file, "H")).removesuffix(b"\0").decode()


def _read_array(file: io.BytesIO) -> NDArray[Any]:
    """The next array; floating-point numbers in float32."""
    shape = [_read_number(file, "I") for _ in range(_read_number(file, "B"))]
    kind = TYPES[_read_number(file, "B")]
    data = file.read(_read_number(file, "I"))
    if kind == "bfloat16":  # the first half of a float32
        halves = np.frombuffer(data, np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    array: NDArray[Any] = np.frombuffer(data, kind).reshape(shape)
    return array.astype(np.float32) if kind == "float16" else array


def _dequantise(variables: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Divide quantised weights by the scale of each row, or of the whole weight."""
    scales = {name: f"{name}_scale" for name in variables if f"{name}_scale" in variables}
    for name, scale in scales.items():
        weight = variables[name]
        rows = variables[scale].reshape(-1, *[1] * (weight.ndim - 1))
        variables[name] = (weight / rows).astype(np.float32)
    if scales:
        log.warning("quantised weights: a model that was converted in float32 is more exact")
    return {name: values for name, values in variables.items() if name not in scales.values()}
