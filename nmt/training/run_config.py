"""The config of a run, config.json, and what a run that is resumed may have otherwise."""

import json
from pathlib import Path
from typing import Any

from nmt.config.check import flat
from nmt.config.settings import Settings, is_path, thaw
from nmt.errors import Exit, UserError
from nmt.storage import manifest
from nmt.training.directory import CONFIG

MAY_DIFFER = (
    *("trainer.max_epochs", "trainer.max_steps", "trainer.threads", "trainer.log_every"),
    *("trainer.max_hours", "trainer.early_stopping", "trainer.keep_best", "trainer.callback"),
    *("trainer.keep_checkpoints", "trainer.tensorboard", "data.workers"),
    *("trainer.device", "trainer.nonfinite_patience"),
    *("trainer.gradient_checkpointing", "trainer.deterministic", "decode"),
    "trainer.compile",  # with a warning: see environment.warn_of_changes
)  # keys (and groups) that a resumed run may have otherwise; paths, too: see `differences`
LANGUAGES = ("decode.source_language", "decode.target_language")  # those that are trained
LENGTH_RATIO = "decode.length_ratio"  # scores of translations depend on it
START = "trainer.init_from"


def read_config(run: Path) -> Settings:
    """The settings of a run; UserError (65) that names config.json if it cannot be read."""
    where = run / CONFIG
    try:
        return thaw(manifest.read(where))
    except UserError as error:
        message = str(error) if str(where) in str(error) else f"{where}: {error}"
        raise UserError(f"{message}; restore it", Exit.DATA) from None


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List what differs between two plain configs as `key: old -> new`, allowed keys left out.

    Paths may differ: the fingerprint of the data is compared instead, and the weights of
    trainer.init_from; but whether there is a start at all may not. Nor may what a model is trained
    on and measured by: its languages, and target lengths where its translations are scored.
    """
    before, after = dict(flat(old)), dict(flat(new))
    before["encoding"], after["encoding"] = [*old["encoding"]], [*new["encoding"]]  # their order
    scored = new["trainer"]["dev_metric"] != "perplexity"
    fixed = (*LANGUAGES, LENGTH_RATIO) if scored else LANGUAGES
    return [
        f"{key}: {_show(before, key)} -> {_show(after, key)}"
        for key in sorted(set(before) | set(after))
        if before.get(key, ...) != after.get(key, ...)
        and (key in fixed or not {key, key.split(".")[0]} & {*MAY_DIFFER})
        and not (is_path(key) and (key != START or (before.get(key) and after.get(key))))
    ]


def _show(values: dict[str, Any], key: str) -> str:
    value = values.get(key, ...)
    return "absent" if value is ... else value if isinstance(value, str) else json.dumps(value)
