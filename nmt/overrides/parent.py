"""Settings that a run takes over from the model that it starts from (trainer.init_from)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nmt.config import PATHS, RECIPE, Data, Settings, thaw
from nmt.errors import Exit, UserError
from nmt.overrides.arguments import read
from nmt.overrides.options import (
    GLOBAL,
    GROUPS,
    Folders,
    chosen_options,
    defaults_of,
    knobs_of,
    options_of,
    path_of,
    values_of,
)
from nmt.storage import manifest
from nmt.storage.modelpath import locate, open_model

CHECKPOINTS, CONFIG = "checkpoints", "config.json"  # in the directory of a run
START = "trainer.init_from"
CORPUS, ENCODING = ("data", "scale"), ("encoding",)  # groups that say which one a run has
LANGUAGES = ("source_language", "target_language")  # of decode: the parent's, unless set
INHERITED = ("segmenter", "data.normalize")  # always the parent's: they define the ids
TREATMENT = {  # keys of data about the use of a text; the others say which text it is
    *("max_length", "join", "join_share", "join_length", "join_within"),
    *("bpe_dropout", "subword_alpha", "subword_nbest", "cache", "workers"),
}


class Parent(NamedTuple):
    """The model that a run starts from."""

    path: Path
    settings: Settings
    data: Data | None  # the text of its training, with its places; None: unknown


def parent_of(path: Path, overrides: Sequence[Override] = ()) -> Parent:
    """Read a parent's settings; if it is gone, those of the run that `name=` says began from it.

    Raises UserError (65, 66) for a parent that cannot be read.
    """
    if not path.exists():
        if (begun := _begun_from(path, overrides)) is not None:
            return begun
        raise UserError(
            f"{path}: no such directory; give a run or a checkpoint, or, to resume a run that "
            "began from it, the name= of that run",
            Exit.NO_INPUT,
        )
    directory = open_model(locate(path))
    try:
        settings = thaw(directory.json("config.json"))
    except UserError as error:
        raise UserError(f"{START}={path}: {error}", Exit.DATA) from None
    places = path.resolve(), path.resolve().parent.parent  # a run, or one of its checkpoints
    trained = next((p for p in places if (p / CHECKPOINTS).is_dir()), None)
    if trained is not None and (trained / CONFIG).is_file():
        return Parent(path, settings, _recorded(path, trained / CONFIG).data)
    return Parent(path, settings, None)


def _begun_from(path: Path, overrides: Sequence[Override]) -> Parent | None:
    """What the run that overrides name took over from a parent, if it began from that."""
    plain = [o for o in overrides if "." not in o.key_or_group]
    typed = OmegaConf.create({o.key_or_group: o.value() for o in plain})  # name=c-${seed}
    try:
        runs, name = typed.get("runs", "runs"), typed.get("name")
    except OmegaConfBaseException:  # a name of keys that nobody typed
        return None
    if not name or not (config := Path(str(runs), str(name), CONFIG)).is_file():
        return None
    begun = _recorded(path, config)
    start = begun.settings.trainer.init_from
    # by its name alone: its place may be spelled in other ways
    return begun if start is not None and Path(start).name == path.name else None


def _recorded(path: Path, config: Path) -> Parent:
    """What the config of a run records of its parent, or of itself; raises UserError (65)."""
    try:
        settings = thaw(manifest.read(config))
    except UserError as error:
        raise UserError(f"{START}: {config}: {error}", Exit.DATA) from None
    return Parent(path, settings, settings.data)


def start_in(overrides: Sequence[Override]) -> Path | None:
    """The parent that overrides name, if it is plain text."""
    for key in (START, "parent"):
        if named := [o for o in overrides if o.key_or_group == key]:
            value = named[-1].value()
            return None if value is None or "${" in str(value) else Path(str(value))
    return None


def with_corpus(overrides: list[Override], folders: Folders, parent: Parent) -> list[Override]:
    """The overrides, and where none chooses a corpus, before them the kind that the parent had.

    So the keys are those of its kind, as data.root.
    """
    if parent.data is None or _choose(CORPUS, overrides, folders):
        return overrides
    return [*read([f"data={parent.data.kind}"]), *overrides]


def _choose(groups: Sequence[str], overrides: Sequence[Override], folders: Folders) -> bool:
    """Whether overrides, or options that they choose, choose an option of one of these groups."""
    return any(group in groups for group, _ in _chosen(overrides, folders))


def _chosen(overrides: Iterable[Override], folders: Folders) -> list[tuple[str, str]]:
    """Groups and options that overrides choose, and those that their files choose in turn."""
    groups = [o for o in overrides if o.key_or_group in GROUPS]
    chosen = [(o.key_or_group, option) for o in groups for option in chosen_options(o)]
    for group, option in chosen:  # grows
        inner = defaults_of(group, option, folders) if group in GLOBAL else []
        chosen += [pair for pair in inner if pair not in chosen]
    return chosen


def set_corpus(
    cfg: DictConfig, parent: Parent, overrides: Sequence[Override], folders: Folders
) -> None:
    """Put the text of the parent into a composed config, where nothing chooses a corpus.

    Keys that an override sets stay, and with data.root all files. Raises UserError for a parent
    that does not tell what it was trained on, such as an imported one.
    """
    if _choose(CORPUS, overrides, folders):
        return
    if parent.data is None:
        raise UserError(
            f"{START}={parent.path}: nothing in it tells where the text of its training lies; name "
            "the text to train on, as in data=files data.root=DIR, or data=toy"
        )
    if cfg.data.kind != parent.data.kind:
        kind = parent.data.kind
        raise UserError(
            f"{START}={parent.path}: was trained with data={kind}; name the corpus, as in "
            f"data={kind} data.root=DIR data.name={parent.data.name}"
        )
    keys = {o.key_or_group.split(".")[1] for o in overrides if o.key_or_group.startswith("data.")}
    if keys & {"root", *RECIPE}:  # RECIPE: the default root depends on them
        keys |= {"name", "columns", "corpora", *PATHS}
    if keys & {"dev_source", "dev_target"}:
        keys.add("dev_lines")
    if keys & {"train_source", "train_target"}:
        keys.add("corpora")
    with open_dict(cfg):
        for key, value in asdict(parent.data).items():
            if key not in TREATMENT | keys:
                cfg.data[key] = value


def inherit(
    cfg: DictConfig, parent: Settings, overrides: Sequence[Override], folders: Folders = ()
) -> None:
    """Give a composed config the parent's values for keys that nothing sets which is chosen.

    Its segmenter and normalisation are taken over, for its vocabulary numbers no other pieces; its
    model and its encoding are the defaults. Raises UserError for an override of segmenter or
    normalisation, and for keys of an encoding that is not chosen.
    """
    refuse_keys_of_encoding(parent, overrides, folders)
    keys, chosen = {o.key_or_group for o in overrides}, _chosen(overrides, folders)
    for o in overrides:
        if o.key_or_group in INHERITED or o.key_or_group.startswith("segmenter."):
            raise UserError(
                f"{o.input_line}: with {START} text is cut as the parent cuts it; leave it out"
            )
    for group, option in chosen:  # keys that it sets in the model, as `feedforward`
        if group in GLOBAL and path_of(group, option, folders).exists():
            keys |= {f"model.{key}" for key in values_of(group, option, folders).get("model", ())}
    known = asdict(parent)
    with open_dict(cfg):
        for key, value in known["model"].items() if "model" not in keys else ():
            if f"model.{key}" not in keys:
                cfg.model[key] = value
        for key in LANGUAGES:
            if f"decode.{key}" not in keys:
                cfg.decode[key] = known["decode"][key]
        if not _choose(ENCODING, overrides, folders):
            cfg.encoding = known["encoding"]
        cfg.segmenter, cfg.data.normalize = known["segmenter"], parent.data.normalize


def refuse_keys_of_encoding(
    parent: Settings, overrides: Sequence[Override], folders: Folders
) -> None:
    """Raise UserError for keys of an encoding where none is chosen, as it is then the parent's."""
    if _choose(ENCODING, overrides, folders):
        return
    theirs = [name for name in parent.encoding if name in options_of("encoding", folders)]
    knobs = {key for name in theirs for key in knobs_of(name, folders)}
    for o in overrides:
        if o.key_or_group.startswith("encoding.") or o.key_or_group in knobs:
            raise UserError(
                f"{o.key_or_group}: with {START} the encoding is the parent's; name one to change "
                f"its keys, as encoding={next(iter(parent.encoding), 'relative')}"
            )
