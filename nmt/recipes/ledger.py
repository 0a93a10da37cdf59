"""What a stage has done, so that it is done once: inputs, and outputs with size and SHA-256.

A ledger is written after its outputs are whole, and by rename: work that was killed is not in it.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt import atomic, manifest
from nmt.errors import Exit, UserError
from nmt.manifest import sha256_of

log = logging.getLogger(__name__)
FORMAT = 1


class Ledger:
    """The finished work of one stage, item by item.

    A file whose size and time of change are as they were is taken as unchanged; one of another
    time is hashed again. `verify` hashes all.
    """

    def __init__(self, root: Path, stage: str, verify: bool = False) -> None:
        self.root, self.stage, self._verify = root, stage, verify
        self.path = root / "state" / f"{stage}.json"
        self._items: dict[str, Any] = {}
        if self.path.is_file():
            try:
                record = manifest.parse(self.path.read_bytes(), self.path)
            except UserError as error:
                log.warning("%s; %s begins anew", error, stage)
                return
            if isinstance(record, dict) and record.get("format") == FORMAT:
                self._items = dict(record.get("items", {}))

    def done(self, item: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The facts of finished work that had these inputs; None if it is to be done."""
        entry = self._items.get(item)
        if not isinstance(entry, dict) or entry.get("inputs") != _plain(inputs):
            return None
        for path, why in self._damaged(entry):
            log.warning("%s: %s %s; made again", self.stage, path, why)
            return None
        return dict(entry["facts"])

    def seems_done(self, item: str, inputs: Mapping[str, Any]) -> bool:
        """Whether work had these inputs, and its outputs have their sizes; reads none of them."""
        entry = self._items.get(item)
        if not isinstance(entry, dict) or _plain(inputs) != entry.get("inputs"):
            return False
        noted = {self.root / name: output["bytes"] for name, output in entry["outputs"].items()}
        return all(path.is_file() and path.stat().st_size == size for path, size in noted.items())

    def note(
        self,
        item: str,
        inputs: Mapping[str, Any],
        outputs: Iterable[Path],
        facts: Mapping[str, Any],
    ) -> None:
        """Write down finished work; its outputs go to the disk first."""
        self._items[item] = {
            "inputs": _plain(inputs),
            "outputs": {self._short(path): _described(path) for path in outputs},
            "facts": _plain(facts),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic.replace(self.path, manifest.dump({"format": FORMAT, "items": self._items}))

    def inputs(self, item: str) -> dict[str, Any]:
        """The inputs of finished work; empty if it was never done."""
        entry = self._items.get(item, {})
        return dict(entry.get("inputs", {}))

    def outputs(self, item: str) -> dict[str, str]:
        """SHA-256 of the outputs of finished work, by name."""
        entry = self._items.get(item, {})
        return {name: noted["sha256"] for name, noted in entry.get("outputs", {}).items()}

    def facts_or_none(self, item: str) -> dict[str, Any] | None:
        """The facts of finished work, whatever became of its outputs."""
        entry = self._items.get(item)
        return dict(entry["facts"]) if isinstance(entry, dict) else None

    def facts(self, item: str, stage_before: str) -> dict[str, Any]:
        """The facts of work that must have been done; UserError (66) names its stage if not."""
        entry = self._items.get(item)
        if not isinstance(entry, dict):
            raise UserError(
                f"{self.root}: {item} is not there yet; the stage {stage_before} makes it",
                Exit.NO_INPUT,
            )
        for path, why in self._damaged(entry):
            raise UserError(
                f"{path}: {why}; the stage {stage_before} makes it again", Exit.NO_INPUT
            )
        return dict(entry["facts"])

    def _damaged(self, entry: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """The outputs of finished work that are not as they were, and what is wrong."""
        for name, noted in entry["outputs"].items():
            path = self.root / name  # an absolute name stays what it is
            if why := self._changed(path, noted):
                yield path, why

    def _changed(self, path: Path, noted: Mapping[str, Any]) -> str:
        """What is wrong with an output; empty if nothing is."""
        try:
            status = path.stat()
        except OSError:
            return "is gone"
        if status.st_size != noted["bytes"]:
            return f"has {status.st_size} bytes, not {noted['bytes']}"
        fresh = status.st_mtime_ns == noted["changed"] and not self._verify
        return "" if fresh or sha256_of(path) == noted["sha256"] else "has another content"

    def _short(self, path: Path) -> str:
        inside = path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if inside else str(path.resolve())


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    status = path.stat()
    return {"bytes": status.st_size, "changed": status.st_mtime_ns, "sha256": sha256_of(path)}


def _plain(value: Mapping[str, Any]) -> Any:
    """As JSON gives it back, so that what was written equals what is asked."""
    return manifest.parse(manifest.dump(dict(value)), Path("ledger"))
