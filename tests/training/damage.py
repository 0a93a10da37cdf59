"""What disks and people do to files."""

from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], None]


def flipped_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.rindex(b"sha256") + 12 if path.name == "manifest.json" else len(data) * 2 // 3
    data[at] ^= 1
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def tenth(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 10])


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def last_byte_lost(path: Path) -> None:
    path.write_bytes(path.read_bytes().rstrip(b"\n")[:-1])


def hole(path: Path) -> None:
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + bytes(third) + data[2 * third :])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def missing(path: Path) -> None:
    path.unlink()


DAMAGES: list[Damage] = [
    *(flipped_bit, emptied, tenth, half, last_byte_lost, hole, zeros, missing),
]
