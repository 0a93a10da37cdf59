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

from nmt.errors import Exit, UserError
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
    """The contents of the files; which variables were read is remembered."""

    directory: Path
    config: dict[str, Any]
    source: list[str]  # names of the ids
    target: list[str]
    variables: dict[str, NDArray[Any]]  # scalars have no dimension
    taken: set[str] = field(default_factory=lambda: {*IGNORED})

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.source == self.target

    def layers(self, stack: str) -> int:
        """How many layers a stack has."""
        matches = (re.match(f"{stack}/layer_([0-9]+)/", name) for name in self.variables)
        return len({match[1] for match in matches if match})

    def same(self, one: str, other: str) -> bool:
        """Whether two variables are one: an alias, or equal number by number."""
        known = self.variables
        return one in known and other in known and np.array_equal(known[one], known[other])

    def number(self, name: str, default: int) -> int:
        """Take a scalar."""
        self.taken.add(name)
        return int(self.variables.get(name, default))

    def scale(self, stack: str, dim: int) -> float:
        """What embeddings of a stack are multiplied by, of sqrt(dim), which nmt multiplies by."""
        self.taken.add(name := f"{stack}/scale_embeddings")
        value = self.variables.get(name, np.int8(1))
        if value.dtype == np.int8:  # whether by sqrt(dim)
            return 1.0 if value else dim**-0.5
        return 1.0 if math.isclose(value, dim**0.5, rel_tol=1e-6) else float(value) * dim**-0.5

    def tensor(self, name: str) -> Tensor:
        """Take a tensor; UserError (65) where it is missing."""
        if name not in self.variables or not self.variables[name].ndim:
            raise self.wrong(f"has no {name}")
        self.taken.add(name)
        return torch.from_numpy(self.variables[name].copy())

    def wrong(self, what: str) -> UserError:
        """The error for what cannot be read."""
        return UserError(f"{self.directory / CTRANSLATE2_WEIGHTS}: {what}", Exit.DATA)

    def refuse_rest(self) -> None:
        """UserError (65) for a variable that was not taken."""
        if rest := self.variables.keys() - self.taken:
            raise self.wrong(f"{min(rest)} has no place in a model of nmt")


def read(directory: Path) -> CTranslate2Files:
    """Read a directory, weights in float32; UserError (65) for a missing or unreadable file."""
    where = directory / CTRANSLATE2_WEIGHTS
    file = io.BytesIO(manifest.read_bytes(where))
    try:
        variables = _dequantise(_read_variables(file, where))
    except (struct.error, ValueError, KeyError, IndexError):
        raise UserError(f"{where}: damaged or incomplete", Exit.DATA) from None
    source, target = (_read_vocabulary(directory, side) for side in ("source", "target"))
    config = manifest.read(directory / "config.json", None)
    return CTranslate2Files(directory, config, source, target, variables)


def _read_vocabulary(directory: Path, side: str) -> list[str]:
    """The names of a side's ids: a JSON list, or of older directories one to a line."""
    places = [directory / f"{name}_vocabulary.{end}" for name in ("shared", side)
              for end in ("json", "txt")]  # fmt: skip
    where = next((place for place in places if place.exists()), None)
    if where is None:
        raise UserError(
            f"{directory}: no {side}_vocabulary.json and no shared_vocabulary.json; "
            "the model is incomplete",
            Exit.DATA,
        )
    data = manifest.read_bytes(where)
    if where.suffix == ".txt":
        return data.decode(errors="replace").removesuffix("\n").split("\n")
    names = manifest.parse(data, where)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{where}: expected a list of pieces", Exit.DATA)
    return names


def _read_variables(file: io.BytesIO, where: Path) -> dict[str, NDArray[Any]]:
    """The variables, also under each name that stands for one; any error if it is damaged."""
    if (version := _read_number(file, "I")) != VERSION:
        raise UserError(f"{where}: format {version}; nmt reads {VERSION}: {AGAIN}", Exit.DATA)
    specification = (_read_name(file), _read_number(file, "I"))
    if specification != SPECIFICATION:
        raise UserError(
            f"{where}: {specification[0]!r}, revision {specification[1]}; only "
            f"{SPECIFICATION[0]}, revision {SPECIFICATION[1]}, can be read: {AGAIN}",
            Exit.DATA,
        )
    variables: dict[str, NDArray[Any]] = {}
    for _ in range(_read_number(file, "I")):
        name = _read_name(file)
        variables[name] = _read_array(file)
        if not np.isfinite(variables[name]).all():
            raise UserError(f"{where}: {name} holds numbers that are not finite", Exit.DATA)
    for _ in range(_read_number(file, "I")):
        alias = _read_name(file)
        variables[alias] = variables[_read_name(file)]
    return variables


def _read_number(file: io.BytesIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0])


def _read_name(file: io.BytesIO) -> str:
    return file.read(_read_number(file, "H")).removesuffix(b"\0").decode()


def _read_array(file: io.BytesIO) -> NDArray[Any]:
    """The next numbers, in float32 if they are fractions."""
    shape = [_read_number(file, "I") for _ in range(_read_number(file, "B"))]
    kind = TYPES[_read_number(file, "B")]
    data = file.read(_read_number(file, "I"))
    if kind == "bfloat16":  # the first half of a float32
        halves = np.frombuffer(data, np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    array: NDArray[Any] = np.frombuffer(data, kind).reshape(shape)
    return array.astype(np.float32) if kind == "float16" else array


def _dequantise(variables: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Each whole number of a weight divided by the scale of its row, or of the whole weight."""
    scales = {name: f"{name}_scale" for name in variables if f"{name}_scale" in variables}
    for name, scale in scales.items():
        weight = variables[name]
        rows = variables[scale].reshape(-1, *[1] * (weight.ndim - 1))
        variables[name] = (weight / rows).astype(np.float32)
    if scales:
        log.warning("quantised weights: a model that was converted in float32 is more exact")
    return {name: values for name, values in variables.items() if name not in scales.values()}
