"""Every key of every file in conf/encoding does something: each is flipped, and it must show."""

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from nmt.checks import example
from nmt.config.catalog import conf_dir, entries_of, options_of, read_comments
from nmt.config.settings import Settings
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from tests.composing import few_representatives, settings_of
from tests.conftest import TINY, moved

STILL = ("model.dropout=0.0", "model.attention_dropout=0.0", "model.feedforward_dropout=0.0")
NAMES = ("heads", "tree", "labels", "column", "order", "name")  # of a column of the source
LEAST = 1e-5  # what two float32 sums of the same numbers may differ by

Value = Any  # of a key: None, a number, a word, a list


def leaves(node: dict[str, Value], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Dotted keys and their values, but for what is chosen elsewhere."""
    for name, value in node.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        elif name not in ("defaults", "use") and "${" not in str(value):
            yield f"{prefix}{name}", value


def keys_of(option: str) -> list[tuple[str, Value]]:
    loaded: Any = OmegaConf.load(conf_dir() / "encoding" / f"{option}.yaml")
    return list(leaves(OmegaConf.to_container(loaded, resolve=False)))  # type: ignore[arg-type]


ENCODING = [(option, k, v) for option in options_of("encoding") for k, v in keys_of(option)]

Flip = tuple[Value, dict[str, Value]]  # another value, and the neighbours that let it matter

_LINEAR: dict[str, Value] = {"encoding.{}.scaling": "linear", "encoding.{}.factor": 2.0}
_NTK: dict[str, Value] = {**_LINEAR, "encoding.{}.partial": 0.5}
# Keys that need a value of their own, or neighbours with other values; {} is the option.
SPECIAL: dict[tuple[str, str], Flip] = {
    ("cape", "encoding.{}.at.augment.center"): (True, {"encoding.{}.where": "encoder"}),
    ("cape", "encoding.{}.at.augment.scale"): (1.5, {}),
    ("complex_order", "model.feedforward"): ("real", {}),
    # steps of 0.01 are so short that a second one between them changes nothing in float32
    ("floater", "encoding.{}.substeps"): (2, {"encoding.{}.step": 0.5}),
    ("gaussian", "encoding.{}.ratio"): (0.5, {"encoding.{}.where": "cross"}),
    ("rotary", "encoding.{}.scaling"): ("ntk", _NTK),
    ("rotary", "encoding.{}.factor"): (3.0, _LINEAR),
    # of 64 positions no pair turns 16 times
    ("yarn", "encoding.{}.beta_fast"): (16.0, {"encoding.{}.ramp": "turns"}),
    ("tpe", "encoding.{}.branches"): (3, {"encoding.{}.binary": False}),
}
LONG = {"normaliser": 600}  # tokens; FIRE divides by what is beyond its threshold of 512
REFUSED = ("where", "reference", "mode", "tau")  # may need other keys, and then say so
TREE = ("heads", "tree")  # name the one column that holds a tree


def flipped(option: str, key: str, value: Value) -> list[Flip]:
    """The other truth, half, one more, the other words of `a | b`, another site; the first counts.

    Those behind it are for encodings that refuse the first, such as an odd width of 2.
    """
    last = key.rsplit(".", 1)[-1]
    for (name, special_key), (other, neighbours) in SPECIAL.items():
        if name == option and special_key.format(option) == key:
            return [(other, {k.format(option): v for k, v in neighbours.items()})]
    values: list[Value]
    if value is None:
        values = [3, 4]
    elif isinstance(value, bool):
        values = [not value]
    elif isinstance(value, int):
        values = [value // 2 if value > 3 else value + 1, value + 2, 2 * value, value - 1]
    elif isinstance(value, float):
        values = [value / 2, value * 2, value + 0.25]
    elif last == "where":
        values = [["encoder"] if len(value) == 2 else ["encoder", "decoder"]]
    elif last in NAMES:
        values = [f"other_{value}"]
    else:
        values = words_of(option, key)
    return [(other, {}) for other in values if other != value]


def words_of(option: str, key: str) -> list[str]:
    """The words that the comment of a key offers, as `a | b: what it does`; the last one first."""
    docs = {k: doc for k, _, doc in read_comments("encoding", option)}
    assert key in docs, f"{key}: has no comment, which is its line in --help"
    doc = docs[key]
    if other := re.fullmatch(r"see (\w+)", doc):
        doc = docs[f"encoding.{other[1]}.{key.rsplit('.', 1)[-1]}"]
    assert "|" in doc, f"{key}: its comment must offer the words to choose from as a | b"
    words = [re.findall(r"\w+", part)[0] for part in doc.split("|")]
    return [*words[1:], words[0]]


@cache
def composed(option: str, *more: str) -> Settings:
    return settings_of(*TINY, f"encoding={option}", *STILL, *more)


def build(option: str, changes: dict[str, Value]) -> Transformer:
    """A tiny model without dropout; an option is composed once for all its own keys."""
    more = [f"{k}={v}" for k, v in changes.items() if not k.startswith("encoding.")]
    settings = deepcopy(composed(option, *more))
    for key, value in changes.items():
        if key.startswith("encoding."):
            node: dict[str, Any] = settings.encoding
            *path, last = key.split(".")[1:]
            for name in path:
                node = node[name]
            node[last] = value
    return moved(settings)


@cache
def unchanged(option: str, *neighbours: tuple[str, Value]) -> Transformer:
    """The model before a key is flipped, which many keys of an option share."""
    return build(option, dict(neighbours))


def facts(model: Transformer) -> dict[str, Any]:
    """What a model says of itself."""
    return {
        "columns": model.columns,
        "needs_lengths": model.needs_lengths,
        "limits": (model.source_limit, model.target_limit),
        "streams": model.streams,
        "parameters": {name: p.shape for name, p in model.named_parameters()},
    }


def difference(before: Transformer, after: Transformer, training: bool, length: int) -> float:
    """Of the outputs of two models with the same weights, and with the same random draws."""
    after.load_state_dict(before.state_dict())
    source, target = example.ids(2, length, 30, seed=0), example.ids(2, length, 30, seed=1)
    target[1, 30:] = source[1, 35:] = 0

    def out(model: Transformer) -> Tensor:
        torch.manual_seed(0)
        with torch.no_grad():
            model.train(training)
            return model(source, target, example.columns(model.entries, source))

    return float((out(before) - out(after))[target != 0].abs().max())


def once_each_class() -> list[Any]:
    """Parameters: the keys of each class, in the first option that has them; few are fast."""
    seen: set[tuple[str, str]] = set()
    cases = []
    for option, key, value in ENCODING:
        name, _, rest = key.removeprefix("encoding.").partition(".")
        entry = entries_of(option).get(name)
        kind = (option if entry is None else str(entry.get("use", name)), rest)
        if kind not in seen:
            marks = [pytest.mark.slow] * (option not in few_representatives())
            cases.append(pytest.param(option, key, value, id=f"{option}-{key}", marks=marks))
            seen.add(kind)
    return cases


@pytest.mark.parametrize("option, key, value", once_each_class())
def test_flipping_a_key_of_an_encoding_shows(option: str, key: str, value: Value) -> None:
    """In what the model says of itself, in its outputs, in those of training, or at its start."""
    last = key.rsplit(".", 1)[-1]
    accepted = []
    for other, neighbours in flipped(option, key, value):
        before = deepcopy(unchanged(option, *neighbours.items()))
        try:
            after = build(option, {**neighbours, key: other})
        except UserError as e:
            assert re.search(rf"\b{last}\b", str(e)), f"{key}={other}: {e}"
            continue
        if shows(before, after, LONG.get(last, 40)):
            return
        accepted.append(other)
    assert not accepted, f"{key}={accepted}: changes nothing"
    assert last in REFUSED + TREE, f"{key}: every other value is refused; name one in SPECIAL"


def shows(before: Transformer, after: Transformer, length: int) -> bool:
    """Whether two models differ: as they are, as they were drawn, or with the same weights."""
    if facts(before) != facts(after) or drawn_apart(before, after):
        return True
    return any(difference(before, after, training, length) > LEAST for training in (False, True))


def drawn_apart(before: Transformer, after: Transformer) -> bool:
    """Whether what is saved starts elsewhere after the same draws, as by an initial value."""
    pairs = zip(before.state_dict().values(), after.state_dict().values(), strict=True)
    return any(not torch.equal(a, b) for a, b in pairs)
