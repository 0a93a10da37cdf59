"""A small picture of a matrix, as a data URI: far lighter than one SVG rectangle per cell."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

LEVELS = 20  # on each side of zero: more cannot be told apart, and fewer pack better
LARGEST = 101  # cells a side; larger matrices are averaged
# From Okabe and Ito's vermillion over a pale grey to their blue: told apart by all readers.
NEGATIVE, MIDDLE, POSITIVE = (0xD5, 0x5E, 0x00), (0xF3, 0xF1, 0xEC), (0x00, 0x72, 0xB2)

Matrix = Sequence[Sequence[float]]


def uri(matrix: Matrix) -> str:
    """Values from -1 to 1, the first row on top, as a `data:image/png` URI, one pixel a cell."""
    levels = np.rint(LEVELS * (1 + shrunk(matrix).clip(-1, 1))).astype(np.uint8)
    height, width = levels.shape
    image = Image.frombytes("P", (width, height), levels.tobytes())
    image.putpalette(palette())
    file = io.BytesIO()
    image.save(file, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def shrunk(matrix: Matrix) -> NDArray[np.float64]:
    """The matrix, or its means over equal blocks where a side is longer than `LARGEST`."""
    small = np.asarray(matrix, dtype=np.float64)
    for _ in range(2):  # the rows, then the columns
        size = len(small)
        starts = np.arange(min(size, LARGEST)) * size // min(size, LARGEST)
        sums = np.add.reduceat(small, starts, axis=0)
        small = (sums / np.diff([*starts, size])[:, None]).T
    return small


def palette() -> bytes:
    """Red, green and blue of the levels, from -1 to 1."""
    colours = bytearray()
    for level in range(-LEVELS, LEVELS + 1):
        end = NEGATIVE if level < 0 else POSITIVE
        part = abs(level) / LEVELS
        colours += bytes(round(m + part * (e - m)) for m, e in zip(MIDDLE, end, strict=True))
    return bytes(colours)
