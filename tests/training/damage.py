"""What disks and people do to files."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

Damage = Callable[[Path], None]
RandomDamage = Callable[[Path, Random], None]


def flipped_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.rindex(b"sha256") + 12 if path.name == "manifest.json" else len(data) * 2 // 3
    data[at] ^= 1
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def last_byte_lost(path: Path) -> None:
    path.write_bytes(path.read_bytes().rstrip(b"\n")[:-1])


def hole(path: Path) -> None:
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + bytes(third) + data[2 * third :])


def missing(path: Path) -> None:
    path.unlink()


DAMAGES: list[Damage] = [flipped_bit, emptied, half, last_byte_lost, hole, missing]


def in_bytes(change: Callable[[bytearray, Random, int], bytes | bytearray]) -> RandomDamage:
    """A change of the content of a file, at a random place."""

    def damage(path: Path, draw: Random) -> None:
        data = bytearray(path.read_bytes())
        path.write_bytes(change(data, draw, draw.randrange(len(data) or 1)))

    return damage


def flip(data: bytearray, draw: Random, at: int) -> bytes | bytearray:
    data[at : at + 1] = bytes(byte ^ 1 << draw.randrange(8) for byte in data[at : at + 1])
    return data


def overwrite(data: bytearray, draw: Random, at: int) -> bytes | bytearray:
    block = draw.choice([bytes(draw.choice((8, 512))), b"\x00\x00\xc0\x7f", b"NaN", b"\xff\xfe"])
    data[at : at + len(block)] = block[: len(data) - at]
    return data


def swap_lines(data: bytearray, draw: Random, at: int) -> bytes | bytearray:
    lines = data.split(b"\n")
    one, other = (draw.randrange(len(lines)) for _ in range(2))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def another_value(data: bytearray, draw: Random, at: int) -> bytes | bytearray:
    """Give a random value of JSON (of one of several lines) another type, or NaN."""
    for parts in ([bytes(data)], bytes(data).split(b"\n")):
        number = draw.randrange(len(parts))
        with suppress(ValueError):
            parts[number] = json.dumps(_changed(json.loads(parts[number]), draw)).encode()
            return b"\n".join(parts)
    return data


def _changed(value: Any, draw: Random) -> Any:
    if isinstance(value, dict | list) and value and draw.random() < 0.9:
        key = draw.choice([*value] if isinstance(value, dict) else range(len(value)))
        value[key] = _changed(value[key], draw)
        return value
    return draw.choice([None, True, -1, 10**30, float("nan"), "x", [value], {"x": value}])


def become_directory(path: Path, draw: Random) -> None:
    path.unlink()
    path.mkdir()


def dangle(path: Path, draw: Random) -> None:
    path.unlink()
    path.symlink_to("no/such/place")


def take_another(path: Path, draw: Random) -> None:
    """Become a copy of another file nearby, of the same name where there is one."""
    files = [p for p in sorted(path.parents[1].rglob("*")) if p.is_file() and p != path]
    path.write_bytes(draw.choice([p for p in files if p.name == path.name] or files).read_bytes())


def take_another_directory(path: Path, draw: Random) -> None:
    """The directory of a file becomes a copy of another one next to it."""
    others = [p for p in sorted(path.parent.parent.iterdir()) if p.is_dir() and p != path.parent]
    if path.parent.parent.name == "checkpoints" and others:
        shutil.rmtree(path.parent)
        shutil.copytree(draw.choice(others), path.parent, symlinks=True)


RANDOM_DAMAGES: dict[str, RandomDamage] = {
    "a bit": in_bytes(flip),
    "cut": in_bytes(lambda data, draw, at: data[:at]),
    "empty": in_bytes(lambda data, draw, at: b""),
    "appended": in_bytes(lambda data, draw, at: data + draw.randbytes(draw.randrange(1, 99))),
    "overwritten": in_bytes(overwrite),
    "lines swapped": in_bytes(swap_lines),
    "another value": in_bytes(another_value),
    "removed": lambda path, draw: path.unlink(),
    "a directory": become_directory,
    "a dangling link": dangle,
    "another file": take_another,
    "another directory": take_another_directory,
    **({} if os.getuid() == 0 else {"unreadable": lambda path, draw: path.chmod(0)}),
}
