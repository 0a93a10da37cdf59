"""Stages that are done once: a stamp has their inputs, and size and SHA-256 of their outputs.

The stamp of a stage is written when its outputs are whole, and by rename: a stage that was killed
has none, and does again only what is not there.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.errors import Exit, UserError
from nmt.recipes.lock import Lock
from nmt.system import atomic, manifest
from nmt.system.manifest import sha256_of

log = logging.getLogger(__name__)
FORMAT = 2


class RecipeJob(NamedTuple):
    """A recipe with its directory and options."""

    lock: Lock
    root: Path  # all files of the recipe
    local: Sequence[Path] = ()  # folders of files fetched by hand
    mirror: str | None = None  # address tried first


class Stage:
    """A part of a recipe, and the record that it is done, ROOT/state/STAGE.json.

    A file whose size and time of change are as they were counts as unchanged; one of another
    time is hashed again.
    """

    def __init__(
        self,
        job: RecipeJob,
        name: str,
        disk: float,
        inputs: Callable[[], Mapping[str, Any]],
        make: Callable[[], tuple[Iterable[Path], str]],
    ) -> None:
        """`disk`: bytes that it needs. `make` returns its outputs, and a report for people.

        `inputs` raises UserError (66) where another stage has to make them first.
        """
        self.name, self.disk = name, disk
        self._job, self._inputs, self._make = job, inputs, make
        self._path = job.root / "state" / f"{name}.json"
        self._record: dict[str, Any] = {}
        if self._path.is_file():
            try:
                record = manifest.read(self._path)
                self._record = record if record.get("format") == FORMAT else {}
            except UserError as error:
                log.warning("%s; the stage %s begins anew", error, name)

    def needs_run(self) -> bool:
        """Whether it must run, or waits for another one."""
        try:
            return bool(self._reason_to_run(self._inputs()))
        except UserError as error:
            if error.code != Exit.NO_INPUT:
                raise
            return True

    def run(self) -> str:
        """Run it unless it is finished; returns its report."""
        inputs = self._inputs()  # before it runs: files may change meanwhile
        if why := self._reason_to_run(inputs):
            log.info("%s: %s", self.name, why)
            outputs, report = self._make()
            self._record = {
                "format": FORMAT,
                "inputs": inputs,
                "outputs": {self._relative_name(path): _described(path) for path in outputs},
                "report": report,
            }
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic.replace(self._path, manifest.dump(self._record))
        else:
            log.info("%s: nothing to do; all inputs and outputs are as they were", self.name)
        return str(self._record["report"])

    def outputs(self) -> dict[str, str]:
        """Names below the root, with SHA-256; UserError (66) if it must run first."""
        if why := self._problem():
            raise UserError(f"{why}; the stage {self.name} makes it", Exit.NO_INPUT)
        if self._changed(self._inputs()):
            raise UserError(
                f"{self._path}: the stage {self.name} ran with another lock file; run it with this",
                Exit.NO_INPUT,
            )
        return {name: file["sha256"] for name, file in self._record["outputs"].items()}

    def _reason_to_run(self, inputs: Mapping[str, Any]) -> str:
        """Why it must run; empty if inputs and outputs are as they were."""
        if not self._record:
            return "not done yet"
        changed = self._changed(inputs)
        return f"other {', '.join(changed)}" if changed else self._problem()

    def _changed(self, inputs: Mapping[str, Any]) -> list[str]:
        """Names of the inputs that are others than those of the record, if there is one."""
        before = self._record.get("inputs", {})
        plain = json.loads(json.dumps(inputs))  # as the record has them
        return [key for key, value in plain.items() if before.get(key) != value]

    def _problem(self) -> str:
        if not self._record:
            return f"{self._path} is not there"
        for name, file in self._record["outputs"].items():
            path = self._job.root / name  # an absolute name stays what it is
            if not path.is_file():
                return f"{path} is gone"
            status = path.stat()
            if status.st_size != file["bytes"]:
                return f"{path} has {status.st_size} bytes, not {file['bytes']}"
            if status.st_mtime_ns != file["changed"] and sha256_of(path) != file["sha256"]:
                return f"{path} has another content"
        return ""

    def _relative_name(self, path: Path) -> str:
        inside = path.is_relative_to(self._job.root)
        return path.relative_to(self._job.root).as_posix() if inside else str(path.resolve())


def _described(path: Path) -> dict[str, Any]:
    """Size, time of change and SHA-256 of an output, once it is on the disk."""
    atomic.sync(path)
    status = path.stat()
    return {
        "bytes": status.st_size,
        "changed": status.st_mtime_ns,
        "sha256": sha256_of(path),
    }
