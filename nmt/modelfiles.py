"""What stands beside the weights of a model directory: read without torch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from nmt.config.check import LARGEST
from nmt.config.settings import Settings, freeze, is_path, thaw
from nmt.errors import Exit, UserError, visible
from nmt.storage import modelpath
from nmt.storage.manifest import VerifiedDirectory
from nmt.text.side import Side

T = TypeVar("T")
CONFIG, SOURCE, TARGET, FACTS = "config.json", "source.json", "target.json", "facts.json"
WEIGHTS = "model.safetensors"
VOCABULARY_LIMIT = 1 << 28  # bytes of source.json and target.json
USUAL_LENGTH = 100  # pieces of the longest source in training where that is unknown: conf/ has it
LONGEST = 500  # characters of a message about a package, which decides on some of them


def reading(path: Path, read: Callable[[Path], T]) -> T:
    """Read the checkpoint directory that a path denotes, which training may remove during that.

    Then the one that the path denotes now is read instead.
    """
    while True:
        checkpoint = modelpath.locate(path)
        try:
            return read(checkpoint)
        except (UserError, OSError):
            if checkpoint == path or checkpoint.exists():
                raise  # was named, or is wrong itself


def sides(path: str | Path) -> tuple[Side, Side]:
    """Read the source and target side of a model alone; raises what `load` does."""
    return reading(Path(path), lambda checkpoint: sides_of(modelpath.open_model(checkpoint)))


def settings(path: str | Path) -> Settings:
    """Read the settings of a model alone; raises what `load` does."""
    return reading(Path(path), lambda checkpoint: settings_of(modelpath.open_model(checkpoint)))


def facts(path: str | Path) -> dict[str, Any]:
    """Read the facts of a model alone, `Trained.facts`; raises what `load` does."""
    return reading(Path(path), lambda checkpoint: facts_of(modelpath.open_model(checkpoint)))


def weights_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a model's weights, as its manifest says; raises what `load` does."""
    return reading(Path(path), lambda place: modelpath.open_model(place).sha256(WEIGHTS))


def portable(settings: Settings) -> Settings:
    """Return settings whose paths are reduced to file names, for another machine."""
    return thaw(_without_directories(freeze(settings)))


def _without_directories(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {
            name: _without_directories(inner, f"{key}.{name}" if key else name)
            for name, inner in value.items()
        }
    return Path(value).name if value and is_path(key) else value


def settings_of(sealed: VerifiedDirectory, name: str = CONFIG) -> Settings:
    """The settings of an opened model directory, in the file of this name."""
    plain = sealed.json(name)
    with in_file(sealed.path / name):
        return thaw(plain)


def facts_of(sealed: VerifiedDirectory) -> dict[str, Any]:
    """The facts of an opened model directory."""
    facts = sealed.json(FACTS)
    check_facts(facts, sealed.path / FACTS)
    return facts


def check_facts(facts: Mapping[str, Any], where: Path) -> None:
    """Raise UserError (65) unless the longest source is stated."""
    longest = facts.get("longest_source", "")
    known = isinstance(longest, int) and 0 <= longest <= LARGEST
    if not known and longest is not None:
        raise UserError(
            f"{where}: longest_source={visible(longest, 20)}: expected pieces "
            "of the longest source in training, or null where that is unknown",
            Exit.DATA,
        )


def sides_of(sealed: VerifiedDirectory) -> tuple[Side, Side]:
    """The source and target side of an opened model directory."""
    return _side(sealed, SOURCE), _side(sealed, TARGET)


def _side(sealed: VerifiedDirectory, name: str) -> Side:
    plain = sealed.json(name, VOCABULARY_LIMIT)
    try:
        with in_file(sealed.path / name):
            return Side.from_json(plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{sealed.path / name}: malformed ({error!r})", Exit.DATA) from None


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Let a UserError name the file whose content is wrong, with exit code 65."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {visible(error, LONGEST)}", Exit.DATA) from None
