"""Names of options and keys: the nearest to one that is not there, and keys given twice."""

from collections.abc import Iterable
from difflib import get_close_matches

from nmt.config import KINDS
from nmt.errors import UserError
from nmt.schema import keys_in

OTHER_NAMES = {  # names in other toolkits -> keys here; the first that exists
    **dict.fromkeys(("batch_size", "max_tokens", "mini_batch"), ("batch_tokens",)),
    **dict.fromkeys(("source", "src", "text"), ("input",)),
    **dict.fromkeys(("checkpoint", "ckpt", "path"), ("model", "init_from")),
    **dict.fromkeys(("ref", "tgt", "target"), ("reference",)),
    **dict.fromkeys(("out", "save_dir", "output_dir", "log_dir"), ("output", "runs")),
    **dict.fromkeys(("gpu", "gpus", "cuda", "use_gpu", "cpu"), ("device",)),
    **dict.fromkeys(("fp16", "bf16", "amp", "compute_type"), ("precision",)),
    **dict.fromkeys(("vocab_size", "bpe_ops", "symbols"), ("vocabulary_size", "merges")),
    **dict.fromkeys(("warmup_steps", "warmup_updates"), ("warmup",)),
    **dict.fromkeys(("learning_rate", "lrate"), ("lr",)),
    **dict.fromkeys(("lenpen", "length_alpha"), ("alpha",)),
    "update_freq": ("accumulate",),
    "max_update": ("max_steps",),
    "nbest": ("n_best",),
    "patience": ("early_stopping",),  # of training; optim.patience is of the learning rate
}


def refuse_duplicates(overrides: Iterable[str]) -> None:
    """Raise UserError for overrides (KEY=VALUE) that name one key twice."""
    by_key: dict[str, str] = {}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if key in by_key:
            raise UserError(f"{override}: {by_key[key]} is given, too; give {key} once")
        by_key[key] = override


def keys_of(groups: Iterable[str]) -> list[str]:
    """The keys of groups, whichever option is chosen, as `decode.beam_size`; in their order."""
    schemas = ((group, schema) for group in groups for schema in KINDS[group].values())
    return list(dict.fromkeys(f"{group}.{key}" for group, of in schemas for key in keys_in(of)))


def closest(name: str, known: Iterable[str]) -> list[str]:
    """Those that a name is most likely meant to be: one, or several keys of equal last parts."""
    group, dot, last = name.rpartition(".")
    by_name: dict[str, list[str]] = {}
    for key in sorted(known):
        by_name.setdefault(key.rpartition(".")[2], []).append(key)
    if name in by_name.get(last, ()):
        return [name]
    if same := next((t for t in (*OTHER_NAMES.get(last, ()), last) if t in by_name), None):
        return by_name[same]
    inside = [t for t, keys in by_name.items() if f"{group}{dot}{t}" in keys]  # of its own group
    # with the group named, a less similar name will do
    if close := get_close_matches(last, inside, n=1, cutoff=0.5 if group else 0.6):
        return [f"{group}{dot}{close[0]}"]
    if group in by_name:
        return by_name[group]
    return [key for t in get_close_matches(last, by_name, n=1) for key in by_name[t]]


def nearest(name: str, known: Iterable[str], listed: bool = True) -> str:
    """'; did you mean X?' if something is near, else what there is (or where to look)."""
    if close := closest(name, known):
        return f"; did you mean {' or '.join(close)}?"
    return f"; choose one of {', '.join(sorted(known))}" if listed else "; see --help all"


def absent_option(
    typed: str, options: Iterable[str], places: Iterable[str] = (), groups: Iterable[str] = ()
) -> str:
    """Say that a command has no such option, and what is near.

    `options` are those that it has, `places` the names of arguments without one, as INPUT, and
    `groups` those whose KEY=VALUE it reads.
    """
    option = typed.partition("=")[0]
    name = option.lstrip("-").replace("-", "_")
    shown = {o.lstrip("-").replace("-", "_"): o for o in options}
    shown |= {place.lower(): f"{place}, without an option" for place in places}
    shown |= {key: f"{key}=..." for key in keys_of(groups)}
    if len(name) == 1:
        close = [known for known in shown if known.startswith(name) and known.isalpha()][:1]
    else:
        close = closest(name, shown)
    if not close:
        return f"{option}: no such option; see --help"
    return f"{option}: no such option; did you mean {' or '.join(shown[key] for key in close)}?"
