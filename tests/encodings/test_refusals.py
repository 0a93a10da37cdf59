"""Entries that mean nothing, or do not fit beside each other, are refused with what to change."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch import nn

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.registry import SITES, create, find, names
from nmt.encodings.site import SiteEncodings
from tests.encodings.attending import dims

UNTYPED = "encoding.mine: strength: has no type in __init__; write strength: float"

ALONE = [  # heads have four components
    ("encoder", "relativ: {}", "are called 'relativ'; did you mean relative?"),
    ("encoder", "relative: {tau: x}", "encoding.relative.tau=x: expected an integer"),
    ("encoder", "relative: {where: [middle]}", "where=middle: choose among"),
    ("encoder", "absolute: {at: 3}", "encoding.absolute: at=3: expected one name"),
    ("encoder", "absolute: {at: {index: {}, shift: {}}}", "expected one name"),
    ("encoder", "relative: {at: nowhere}", "at=nowhere: no positions are called 'nowhere'; choose"),
    ("encoder", "absolute: {at: {index: {integer: true}}}", "at.index.integer: no such key"),
    ("encoder", "absolute: {at: {index: {step: 0}}}", "encoding.absolute: at.index.step=0: all"),
    ("encoder", "fox: {at: {index: {start: 1}}}", "at=index: this encoding never looks at pos"),
    ("encoder", "absolute: {at: {augment: {shift: .nan}}}", "at.augment.shift=nan"),
    ("decoder", "absolute: {at: {augment: {center: true}}}", "not for where=decoder"),
    ("encoder", "learned: {at: augment}", "needs whole positions"),
    ("cross", "position_infused: {where: cross, at: shift}", "not for where=cross; give where"),
    ("encoder", "absolute: {at: {sample: {longest: 9}}}", "512: must be at most longest=9"),
    ("cross", "absolute: {where: cross}", "where=cross: this encoding works on embeddings"),
    ("decoder", "xpos: {at: remaining}", "encoding.xpos: positions that count down"),
    ("cross", "cope: {where: cross}", "where=cross: not for this encoding; give where=[encoder"),
    # columns and trees
    ("encoder", "absolute: {at: tree}", "a position for every single token"),
    ("encoder", "bias_table: {at: tree, reference: absolute}", "needs a position for every single"),
    ("decoder", "relative: {at: tree}", "at=tree: not for where=decoder; give where"),
    ("encoder", "absolute: {at: column}", "at.column: say which one"),
    ("encoder", "relative: {at: {tree: {heads: parse}}}", "heads=parse: choose one of heads"),
    ("encoder", "graformer: {at: tree}", "encoding.graformer: needs path lengths: at={graph"),
    ("encoder", "tpe: {branches: 3}", "branches=3: a binary tree has 2; set binary=false"),
    ("encoder", "per_language: {column: ''}", "column=: name the column"),
    ("encoder", "structural: {path: feature}", "longest=5: with 20 labels there are "),
    ("encoder", "graph_transformer: {longest: 12}", "more than 9,007,199,254,740,992 paths"),
    # tables without a position, or a distance, of any token
    ("encoder", "learned: {size: 12, at: {shift: {k: 100}}}", "learned: not even one token has"),
    ("encoder", "learned: {size: 12, at: {shift: {k: 1, test: 20}}}", "not even one token"),
    ("encoder", "axial: {at: {index: {start: -1}}}", "axial: not even one token has a position"),
    ("encoder", "relative: {tau: null, longest: 12, at: {graph: {longest: 50}}}", "not even one"),
    ("encoder", "relative: {tau: null, longest: 12, at: {column: {name: order}}}", "a column may"),
    # options that contradict each other, or the sizes of the model
    ("encoder", "axial: {first: 8}", "first=8: must be below the width 8"),
    ("encoder", "t5: {buckets: 30}", "buckets=30: must be a multiple of 4"),
    ("encoder", "t5: {max_distance: 8}", "max_distance=8: must be above 8"),
    ("encoder", "sandwich: {width: 7}", "width=7: must be even"),
    ("encoder", "convolution: {width: 4}", "width=4: must be odd, and at least 3"),
    ("encoder", "irpe: {gamma: 15}", "gamma=15: must grow"),
    ("encoder", "irpe: {key: none}", "nothing is left to learn"),
    ("encoder", "irpe: {query: bias, key: bias}", "the same term twice"),
    ("encoder", "composite: {fixed: false, query: false}", "nothing is left to learn"),
    ("encoder", "relative: {key: false, value: false}", "key=false and value=false"),
    ("encoder", "relative: {tied: true, value: false}", "tied=true: needs key=true and value=true"),
    ("encoder", "relative: {tau: null}", "tau=null: needs longest"),
    ("encoder", "rotary: {partial: 0.25}", "partial=0.25: must leave an even number of 4"),
    ("encoder", "rotary: {factor: 2.0}", "factor=2.0: the factor must be 1 with scaling=none"),
    ("encoder", "p_rope: {p: 0.1}", "p=0.1: must let 1 to 2 pairs rotate"),
    ("encoder", "fope: {original: 6}", "original=6: no pair turns once"),
    ("encoder", "yarn: {beta_slow: 40.0}", "beta_slow=40.0: must be below beta_fast=32.0"),
    ("encoder", "sine_spe: {realizations: 8}", "realizations=8: mode=exact draws nothing"),
    ("encoder", "sine_spe: {mode: stochastic}", "realizations=null: mode=stochastic needs"),
    ("encoder", "tupe: {buckets: 32}", "buckets and max_distance: give both"),
    ("encoder", "diet: {}", "rank=null: reference=absolute needs at least 1"),
    ("encoder", "wavelet: {scales: 3}", "scales=3: must divide the 4 of a head"),
    (
        "encoder",
        "stick_breaking: {remainder: true, remainder_vector: true}",
        "give what is left to one",
    ),
    # of two layers
    ("encoder", "rotary: {layers: [2]}", "layers=[2]: list different numbers from 0 to 1"),
    ("encoder", "rotary: {layers: [1, 1]}", "layers=[1, 1]: list"),
    ("encoder", "rotary: {layers: '01'}", "layers=01: list"),
    ("encoder", "absolute: {layers: [0]}", "encoding.absolute: layers: this encoding works on"),
]
ODD = [  # three heads of three components
    ("encoder", "absolute: {}", "even width, not 9"),
    ("encoder", "rotary: {}", "even width, not 3"),
    ("encoder", "alibi: {directional: true}", "3 heads cannot be halved"),
    ("encoder", "disan: {}", "3 heads cannot be halved"),
]
FEATURES = "reads queries and keys, but encoding.sine_spe turns them into features"
TOGETHER = [
    ("encoder", "deberta: {}, t5: {scaled: false}", "more than one entry sets the scale"),
    ("encoder", "dape: {}, deberta: {}", "more than one entry sets the scale"),
    ("cross", "coverage: {where: cross}, t5: {where: cross, scaled: false}", "sets the scale of"),
    (
        "encoder",
        "sigmoid_attention: {}, stick_breaking: {layers: [1]}",
        "only one entry can replace softmax",
    ),
    ("encoder", "complex_order: {}, absolute: {}", "one entry must make all embeddings complex"),
    *(
        ("encoder", f"{pair[0]}: {{}}, {pair[1]}: {{}}", FEATURES)
        for other in ("relative", "cope", "conv_spe")
        for pair in (("sine_spe", other), (other, "sine_spe"))
    ),
    ("encoder", "sine_spe: {}, rotary: {}", FEATURES),
    ("encoder", "sine_spe: {}, position_infused: {}", FEATURES),
    ("encoder", "sine_spe: {}, s: {use: sine_spe}", FEATURES),
    ("encoder", "rotary: {}, gaussian: {}", "rotary: changes nothing, because encoding.gaussian"),
    ("encoder", "gaussian: {}, rotary: {}", "rotary: changes nothing, because encoding.gaussian"),
    ("encoder", "sliding_window: {}, gaussian: {}", "sliding_window: changes nothing, because"),
    ("encoder", "synthesizer: {form: random}, gaussian: {}", "synthesizer: changes nothing, bec"),
    ("encoder", "xpos: {}, synthesizer: {form: random}", "xpos: changes nothing, because"),
    ("encoder", "huang: {}, synthesizer: {}", "huang: changes nothing, because"),
]
FITTING = [
    *("rotary: {}, sine_spe: {}", "floater: {}, gaussian: {}", "alibi: {}, synthesizer: {}"),
    *("relative: {key: false}, gaussian: {}", "rotary: {}, gaussian: {layers: [0]}"),
    *("synthesizer: {}, huang: {}", "rotary: {}, synthesizer: {}", "coverage: {where: cross}"),
    *("sigmoid_attention: {layers: [0]}, stick_breaking: {layers: [1]}", "fox: {at: index}"),
]


def entries_of(text: str) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = yaml.safe_load(f"{{{text}}}")
    return entries


def wrongly_handled(table: list[tuple[str, str, str]], **sizes: Any) -> Iterator[str]:
    """The rows of a table that are accepted, or refused without these words."""
    for site, text, expected in table:
        try:
            SiteEncodings(create(entries_of(text), dims(site, **sizes)))
        except ValueError as error:
            if expected not in str(error) or "\n" in str(error):
                yield f"{text}: {error}"
        else:
            yield f"{text}: accepted"


def test_what_means_nothing_is_refused() -> None:
    assert [*wrongly_handled(ALONE)] == []
    assert [*wrongly_handled(ODD, heads=3, head_dim=3)] == []


def test_what_does_not_fit_together_is_refused() -> None:
    assert [*wrongly_handled(TOGETHER)] == []
    for text in FITTING:
        assert list(SiteEncodings(create(entries_of(text), dims()))) or "where: cross" in text


def test_sites_are_those_that_a_class_declares() -> None:
    for site, name in product(SITES, names()):
        if site not in find(name).sites:
            with pytest.raises(ValueError, match=f"where={site}: "):
                create({name: {"where": site}}, dims(site))


class Untyped(Encoding):
    def __init__(self, dims: Dims, strength=0.5) -> None:  # type: ignore[no-untyped-def]
        super().__init__(dims)


class NoDefault(Encoding):
    def __init__(self, dims: Dims, tau: int) -> None:
        super().__init__(dims)


def test_options_of_a_class_need_types_and_values() -> None:
    with pytest.raises(ValueError, match=rf"^{UNTYPED}"):
        create({"mine": {"use": Untyped, "strength": 1}}, dims())
    assert create({"mine": {"use": Untyped}}, dims())
    with pytest.raises(ValueError, match=r"^encoding\.mine\.tau: has no value; give"):
        create({"mine": {"use": NoDefault}}, dims())


class Taking(Encoding):
    """Gives a module, or a buffer, a name that is taken."""

    def __init__(self, dims: Dims, buffer: str = "other") -> None:
        super().__init__(dims)
        self.mine = 1
        self.register_buffer(buffer, None)
        self.embed = nn.Embedding(2, 2)  # type: ignore[method-assign]


def test_names_of_the_base_class_are_refused() -> None:
    for options, message in (({}, "'embed' has the name of"), ({"buffer": "dims"}, "in the base")):
        with pytest.raises(ValueError, match=message):
            create({"mine": {"use": Taking, **options}}, dims())
    with pytest.raises(KeyError, match="mine"):  # its own mistake
        create({"mine": {"use": Taking, "buffer": "mine"}}, dims())


def test_a_broken_family_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("import nowhere", encoding="utf-8")
    monkeypatch.setattr("nmt.encodings.__path__", [str(tmp_path)])
    with pytest.raises(ImportError, match="nowhere"):
        names()


def test_where_selects_sites_and_order_is_kept() -> None:
    text = "absolute: {where: [decoder]}, rotary: {}, near: {use: relative, tau: 2}"
    made = [(type(e).__name__, e.name) for e in create(entries_of(text), dims())]
    assert made == [("Rotary", "rotary"), ("Relative", "near")]
