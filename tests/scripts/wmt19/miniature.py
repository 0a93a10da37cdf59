"""The recipes in miniature: archives of the real names and inner layout, and their TOML file."""

import gzip
import hashlib
import io
import json
import random
import tarfile
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from nmt.toy import pairs as toy
from scripts.wmt19 import RECIPES

LINES = 60  # of a pair of members
HAN = "".join(chr(0x4E00 + i) for i in range(30))


@cache
def pairs(recipe: str, count: int, seed: str) -> tuple[tuple[str, str], ...]:
    """Source and target lines. Of many, the second is too long for the limit of 100 pieces."""
    drawn = toy(count, 4, 20, seed)
    if count == LINES:
        drawn[1] = (" ".join([drawn[1][0]] * 40), drawn[1][1])
        drawn[2] = toy(1, 28, 28, seed)[0]  # 76 to 100 pieces
    if recipe == "deen":
        return tuple(drawn)
    rng = random.Random(seed)
    counts = [len(source.split()) for source, _ in drawn]
    chinese = ["".join(rng.choice(HAN) for _ in range(count)) for count in counts]
    return tuple((f"{one}。", target) for one, (_, target) in zip(chinese, drawn, strict=True))


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def tar(members: dict[str, bytes]) -> bytes:
    """The same bytes at any time of day, as of `zipped` and `rows`: hashes stand in recipes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)  # of 1980
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def rows(lines: list[tuple[str, ...]]) -> bytes:
    """A compressed TSV with borders of documents: an empty row, and a row of blank cells."""
    told = ["\t".join(cells) for cells in lines]
    told.insert(2, "")
    told.insert(len(told), "\t")
    return gzip.compress("".join(f"{row}\n" for row in told).encode(), mtime=0)


def archives(recipe: str, corpus: dict[str, Any], languages: list[str]) -> dict[str, bytes]:
    """The files of a corpus by name, each with the same text; the number of its lines."""
    files = {}
    for archive in corpus["archives"]:
        drawn = pairs(recipe, LINES, corpus["id"])
        if "columns" in corpus:
            swapped = corpus["columns"] != languages
            cells = [(t, s) if swapped else (s, t) for s, t in drawn]
            more = ("a third column",) if corpus["id"] == "europarl" else ()
            files[archive["file"]] = rows([(*pair, *more) for pair in cells])
            continue
        members = {"README": b"not asked for\n", "commoncrawl.cs-en.cs": b"neither\n"}
        for number, pair in enumerate(corpus["pairs"]):
            if number:
                drawn = pairs(recipe, LINES, f"{corpus['id']}{number}")
            for side, code in enumerate(languages):
                members[pair[code][-1]] = text([each[side] for each in drawn])
        make = zipped if archive["file"].endswith(".zip") else tar
        files[archive["file"]] = make(members)
    return files


def make(recipe: str, folder: Path, url: str) -> dict[str, bytes]:
    """Write FOLDER/RECIPE.toml and FOLDER/sets; give the files to be served at the address."""
    (folder / "sets").mkdir(parents=True, exist_ok=True)
    plain = tomllib.loads(RECIPES[recipe].read_text("utf-8"))
    languages = plain["languages"]
    served: dict[str, bytes] = {}
    for corpus in plain["corpora"]:
        files = archives(recipe, corpus, languages)
        served |= files
        corpus["lines"] = LINES * len(corpus.get("pairs", [0]))
        corpus["text_mb"] = 1
        for archive in corpus["archives"]:
            data = files[archive["file"]]
            archive["urls"] = [f"{url}/{archive['file']}"]
            own = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            others = archive["versions"][1:] if len(archive["versions"]) > 1 else []
            archive["versions"] = [*others, own]
    for name, known in plain["sets"].items():
        known["lines"] = 7
        for side, code in enumerate(languages):
            lines = [pair[side] for pair in pairs(recipe, 7, name)]
            (folder / "sets" / f"{name}.{code}").write_bytes(text(lines))
    dumped = "".join(f"{key} = {inline(value)}\n" for key, value in plain.items())
    (folder / f"{recipe}.toml").write_text(dumped, encoding="utf-8")
    return served


def inline(value: Any) -> str:
    """A value as TOML in one line."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)} = {inline(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
