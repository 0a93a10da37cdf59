"""The page behind --help, made from conf/ and the schema, so that it cannot go stale."""

from dataclasses import fields
from typing import Any

from omegaconf import OmegaConf

from nmt.config import KINDS, conf_dir
from nmt.overrides.compose import OF_TABLES
from nmt.overrides.options import Folders, commented, encoding_keys, options_of, path_of, summary

_GROUPS = (
    *("data", "segmenter", "model", "encoding", "optim", "trainer", "decode"),
    *("experiment", "scale", "run"),
)


def page(usage: str, groups: tuple[str, ...] = _GROUPS, folders: Folders = ()) -> str:
    """Usage, the groups and their options, then every key with its meaning and default."""
    lines = [usage.strip(), "", "Groups (GROUP=OPTION; * is the default):"]
    chosen = _defaults()
    for group in groups:
        if not (options := options_of(group, folders)):
            continue
        lines.append(f"  {group}")
        for option in options:
            star = "*" if chosen.get(group) == option else " "
            lines.append(f"   {star} {option:<20} {summary(group, option, folders)}")
    lines += ["", "Keys (KEY=VALUE; in brackets the default of the default option):"]
    lines += [f"  {k:<30} {doc} [{d}]" for k, d, doc in root_keys()]
    for group, kinds in KINDS.items():
        if group not in groups:
            continue
        for schema in kinds.values():
            doc = (schema.__doc__ or "").split("\n")[0]
            lines += ["", f"  {group}.* {schema.__name__.lower()}: {doc}"]
            lines += _keys(group, schema)
    if "scale" in groups:
        lines += [
            "",
            "  Of the paper's tables (experiment=table1 ... table4) at the default scale:",
        ]
        lines += [f"  {k:<30} {doc} [{d}]" for k, d, doc in table_keys()]
    if "encoding" not in groups:
        return "\n".join(lines) + "\n"
    lines += ["", "  encoding.*"]
    for option in options_of("encoding", folders):
        keys = encoding_keys(option, folders)
        lines += [f"  {k:<38} {doc} [{d}]" for k, d, doc in keys]
    lines.append("  encoding.NAME.where, .at         sites (encoder, decoder, cross); positions;")
    lines.append("                                   add with + where the file has none")
    return "\n".join(lines) + "\n"


def root_keys() -> list[tuple[str, str, str]]:
    """Key, default and meaning of what stands in train.yaml itself."""
    return commented(conf_dir() / "train.yaml")


def table_keys() -> list[tuple[str, str, str]]:
    """Key, default and meaning of what a table and its scale add to a config."""
    shared, own = (conf_dir() / "experiment" / name for name in ("parts/table.yaml", "table2.yaml"))
    loaded: Any = OmegaConf.load(shared)
    (scale,) = (v for each in loaded.defaults for k, v in each.items() if k.endswith("/scale"))
    found = commented(own) + commented(shared) + commented(path_of("scale", scale))
    return [each for each in found if each[0].split(".")[0] in OF_TABLES]


def _defaults() -> dict[str, str]:
    loaded: Any = OmegaConf.load(conf_dir() / "train.yaml")
    return {k: v for d in loaded.defaults if d != "_self_" for k, v in d.items()}


def _keys(group: str, schema: type) -> list[str]:
    values = _values(group, schema)
    rows = []
    for f in fields(schema):
        key = f"{group}.{f.name}"
        choices = f" ({' | '.join(f.metadata['choices'])})" if f.metadata["choices"] else ""
        rows.append(f"  {key:<30} {f.metadata['doc']}{choices} [{values.get(f.name, '-')}]")
        if inner := f.metadata["of"]:
            rows += _keys(f"{key}.NAME", inner)
    return rows


def _values(group: str, schema: type) -> dict[str, Any]:
    """Defaults from the group's default option, or from the first that has this schema."""
    if group not in KINDS:  # what a mapping of names holds has no defaults
        return {}
    default = _defaults().get(group, "")
    for option in [default, *options_of(group)]:
        loaded: Any = OmegaConf.load(conf_dir() / group / f"{option}.yaml")
        values = {k: OmegaConf.to_container(loaded)[k] for k in loaded if k != "defaults"}  # type: ignore
        if {f.name for f in fields(schema)} <= set(values):
            return {k: "null" if v is None else v for k, v in values.items()}
    return {}
