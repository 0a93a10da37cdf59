"""A small picture of a matrix, as a data URI: far lighter than one SVG rectangle per cell."""

import base64
import struct
import zlib
from collections.abc import Sequence

LEVELS = 20  # on each side of zero: more cannot be told apart, and fewer pack better
LARGEST = 101  # cells a side; larger matrices are averaged
# From Okabe and Ito's vermillion over a pale grey to their blue: told apart by all readers.
NEGATIVE, MIDDLE, POSITIVE = (0xD5, 0x5E, 0x00), (0xF3, 0xF1, 0xEC), (0x00, 0x72, 0xB2)

Matrix = Sequence[Sequence[float]]


def uri(matrix: Matrix) -> str:
    """Values from -1 to 1, the first row on top, as a `data:image/png` URI, one pixel a cell."""
    small = shrunk(matrix)
    rows = b"".join(b"\0" + bytes(_level(value) for value in row) for row in small)
    header = struct.pack(">2I5B", len(small[0]), len(small), 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", header),
        (b"PLTE", palette()),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)
    return "data:image/png;base64," + base64.b64encode(whole).decode("ascii")


def shrunk(matrix: Matrix) -> list[list[float]]:
    """The matrix, or its means over equal blocks where a side is longer than `LARGEST`."""
    rows = _blocks(len(matrix))
    columns = _blocks(len(matrix[0]))
    return [
        [
            sum(matrix[i][j] for i in range(*r) for j in range(*c))
            / ((r[1] - r[0]) * (c[1] - c[0]))
            for c in columns
        ]
        for r in rows
    ]


def _blocks(size: int) -> list[tuple[int, int]]:
    count = min(size, LARGEST)
    return [(i * size // count, (i + 1) * size // count) for i in range(count)]


def _level(value: float) -> int:
    return round(LEVELS * (1 + max(-1.0, min(1.0, value))))


def palette() -> bytes:
    """Red, green and blue of the levels, from -1 to 1."""
    colours = bytearray()
    for level in range(-LEVELS, LEVELS + 1):
        end = NEGATIVE if level < 0 else POSITIVE
        part = abs(level) / LEVELS
        colours += bytes(round(m + part * (e - m)) for m, e in zip(MIDDLE, end, strict=True))
    return bytes(colours)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check
