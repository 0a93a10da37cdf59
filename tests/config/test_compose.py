"""What the words of a command line become, and what is said of wrong ones."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nmt import build
from nmt.config.catalog import conf_dir, config_dir_override, options_of, read_comments
from nmt.config.compose import _warn, experiment_of
from nmt.config.settings import freeze, thaw
from nmt.encodings.registry import COMMON
from nmt.errors import Exit, UserError
from tests.composing import few_representatives, settings_of
from tests.conftest import TINY

WARMUP = "# @package _global_\noptim: {warmup: 3}\n"
FOUR = [f"data.{part}=there/{part}" for part in ("train_source", "train_target")]
FOUR += [f"data.{part}=other/{part}" for part in ("dev_source", "dev_target")]


@pytest.mark.parametrize(
    "key, words",
    [
        ("tau: no such key with this encoding; these have", ["encoding=absolute", "tau=16"]),
        ("encoding=relativ: no such option", ["encoding=[absolute,relativ]"]),
        ("model.dim=abc: expected an integer", ["model.dim=abc"]),
        ("dim: no such key; did you mean model.dim?", ["dim=3"]),
        ("data.source_language=True: expected a text; quote it", ["data.source_language=true"]),
        ("name=/x: becomes a path", ["name=/x"]),
        ("data.root: has no value; give data.root=..., or name each file", ["data=files"]),
        ("data.root: has no value", ["data=files", *FOUR[:3]]),
        ("data.dev_source=other/dev_source: not read with data.dev_lines",
         ["data=files", *FOUR, "data.dev_lines=9"]),
        ("data.train_source=there/train_source: not read with data.corpora",
         ["data=files", *FOUR, "+data.corpora.a={root: a}"]),
        ("data.dev_source=a: not read with data.corpora",
         ["data=files", "data.root=x", "data.dev_source=a",
          "+data.corpora.a={root: a,dev_source: b,dev_target: c}"]),
        ("data.dev_source, data.dev_target: null; name both, or hold out lines",
         ["data=files", "data.root=x", "data.dev_source=null"]),
        ("data.corpora.fr: adds to what there is; write +data.corpora.fr=",
             ["data=files", "data.root=x", "data.corpora.fr={weight: 2}"]),
        ("segmenter.merges: has no effect with segmenter.kind=unigram; only with bpe",
         ["segmenter=unigram", "segmenter.merges=5"]),
        ("data.train_pairs: has no effect with data.kind=files; only with toy",
         ["data=files", "data.root=x", "data.train_pairs=5"]),
        ("encoding: no entry is left", ["~encoding.absolute"]),
        ("~encoding.absolute.layout.x: there is no such key", ["~encoding.absolute.layout.x"]),
        ("+tau=3: belongs to an encoding", ["+tau=3"]),
        ("model=[tiny,small]: one option; for several runs: -m model=tiny,small",
         ["model=[tiny,small]"]),
        ("segmenter.codes: has no value", ["segmenter=codes"]),
        ("relative: not KEY=VALUE", ["relative"]),
        ("seed=1,2: several values; nmt-train -m makes a run of each", ["seed=1,2"]),
    ],
)  # fmt: skip
def test_wrong_words_get_one_line(key: str, words: list[str]) -> None:
    with pytest.raises(UserError) as e:
        experiment_of(words)
    assert str(e.value).startswith(key) and "\n" not in str(e.value)
    assert e.value.code == Exit.USAGE


@pytest.mark.parametrize(
    "words, directory",
    [
        (["encoding=relative", "seed=3"], "runs/toy/relative-seed3"),
        (["encoding=[absolute,relative]", "tau=8"], "runs/toy/absolute+relative-tau8-seed1"),
        (
            ["encoding=rotary", "+encoding.rotary.layers=[0, 2]", "encoding.rotary.where=encoder"],
            "runs/toy/rotary-rotary.layers-0+2-rotary.where-encoder-seed1",
        ),
        (
            ["encoding=rotary", "+encoding.rotary.a=-0.5", "+encoding.rotary.b=[1e-5,x-y,-3]"],
            "runs/toy/rotary-rotary.a--0.5-rotary.b-1e+5+x+y+-3-seed1",
        ),
        (["runs=a b", "name=c/d"], "a b/c/d"),
        (["data=files", "data.root='it, b'"], "runs/it_b/absolute-seed1"),
        (["data=files", "data.root=/"], "runs/files/absolute-seed1"),
        (["data=files", "data.root=null", "+data.corpora.a.root=A"], "runs/files/absolute-seed1"),
        (["data=multi30k", "data.root=my/corpus"], "runs/multi30k/absolute-seed1"),
        (["data=files", *FOUR[:2], "data.dev_lines=9"], "runs/there/absolute-seed1"),
        (
            ["run=R4", "scale=small", "data.root=my/corpus"],
            "runs/table-corpus/absolute-max38-seed1",
        ),
    ],
)
def test_the_run_is_named_after_its_choices(words: list[str], directory: str) -> None:
    assert experiment_of(words).run == Path(directory)


def test_a_list_of_encodings_keeps_its_order_and_shares_knobs() -> None:
    settings = experiment_of(["encoding=[relative,absolute]", "tau=8"]).settings
    assert list(settings.encoding) == ["relative", "absolute"]
    assert settings.encoding["relative"]["tau"] == 8
    differing = experiment_of(["encoding=[relative,composite]", "tau=9"]).settings
    assert [entry["tau"] for entry in differing.encoding.values()] == [9, 9]


def test_a_typed_encoding_replaces_that_of_a_run_or_experiment(tmp_path: Path) -> None:
    replaced = experiment_of(["run=R4", "scale=toy", "encoding=lstm"])
    assert list(replaced.settings.encoding) == ["lstm"]
    assert replaced.run == Path("runs/table-toy/lstm-max36-seed1")
    entries = experiment_of(["run=R4", "scale=toy", "encoding=absolute"]).settings.encoding
    assert entries["absolute"]["at"] == {"index": {"start": 1}}
    added = ["encoding=lstm", "+encoding.other={use: alibi}"]
    entries = experiment_of(["run=R4", "scale=toy", *added]).settings.encoding
    assert list(entries) == ["lstm", "other"]
    deeper = ["encoding=lstm", "encoding.absolute.at.index.start=3"]
    with pytest.raises(UserError, match=r"absolute\.at\.index\.start=3: absolute is not chosen"):
        experiment_of(["run=R4", "scale=toy", *deeper])
    (tmp_path / "experiment").mkdir()
    text = "defaults:\n  - override /encoding: rotary\nencoding: {rotary: {where: decoder}}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}")
    mine = [*config_dir_override(str(tmp_path)), "experiment=mine"]
    assert list(experiment_of([*mine, "encoding=relative"]).settings.encoding) == ["relative"]
    assert experiment_of([*mine, "encoding=rotary"]).settings == experiment_of(mine).settings


def test_settings_survive_freezing() -> None:
    for option in few_representatives():
        settings = settings_of(f"encoding={option}")
        assert thaw(freeze(settings)) == settings, option


def test_another_kind_than_that_of_an_experiment_or_scale_may_be_chosen() -> None:
    plateau = freeze(experiment_of(["experiment=demo", "optim=adam_plateau"]).settings)["optim"]
    assert plateau["lr"] == 2e-3 and "warmup" not in plateau and "patience" in plateau
    files = ["data=files", "data.root=x"]
    data = freeze(experiment_of(["experiment=demo", *files]).settings)["data"]
    assert "train_longest" not in data
    table = ["experiment=table3", "scale=small", "data.root=x", "run=R2", "hydra.mode=RUN"]
    assert experiment_of([*table, "segmenter=unigram"]).settings.segmenter.kind == "unigram"


def test_what_an_experiment_sets_otherwise_than_a_typed_option_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _warn.cache_clear()
    for _ in range(2):
        words = ["experiment=demo", "trainer=gpu", "trainer.batch_tokens=9", "optim=adam_plateau"]
        assert experiment_of(words).settings.trainer.device == "cpu"
    assert [record.message for record in caplog.records] == [
        "optim=adam_plateau: experiment=demo sets optim.lr=0.002; to change a key, give it",
        "trainer=gpu: experiment=demo sets trainer.device=cpu, trainer.precision=float32; to "
        "change a key, give it",
    ]
    caplog.clear()
    experiment_of(["experiment=demo", "model=tiny"])  # as it chooses itself
    experiment_of(["encoding=universal", "model=base"])
    assert not caplog.text


def own(folder: Path, group: str, text: str) -> list[str]:
    """The overrides that choose an option of one's own."""
    (folder / group).mkdir()
    (folder / group / "mine.yaml").write_text(text, encoding="utf-8")
    return [*config_dir_override(str(folder)), f"{group}=mine"]


def test_a_key_that_the_chosen_kind_lacks_is_refused_where_one_names_it(tmp_path: Path) -> None:
    for words in (["experiment=demo"], []):
        with pytest.raises(UserError, match=r"^optim\.warmup"):
            experiment_of([*words, "optim.warmup=3", "optim=adam_plateau"])
    settings = experiment_of(own(tmp_path, "experiment", WARMUP)).settings
    assert "warmup" not in freeze(settings)["optim"]


@pytest.mark.parametrize("other", ["mine", "second"])
def test_an_option_that_builds_on_itself_ends_in_one_line(other: str, tmp_path: Path) -> None:
    words = own(tmp_path, "model", f"defaults: [{other}, _self_]\ndim: 64\n")
    (tmp_path / "model" / "second.yaml").write_text("defaults: [mine, _self_]\n")
    with pytest.raises(UserError, match=r"model=\w+ builds on itself"):
        experiment_of(words)


def test_a_key_of_the_encoding_that_an_option_uses_may_be_set() -> None:
    entries = experiment_of(["encoding=pose", "encoding.pose.scaling=linear"]).settings.encoding
    assert entries["pose"]["scaling"] == "linear"
    small = settings_of(*TINY, "encoding=pose", "encoding.pose.scalling=linear")
    with pytest.raises(
        UserError, match=r"encoding\.pose\.scalling: no such key; did you mean scal"
    ):
        build.transformer(small, 8, 8)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"extra": 1}, "extra: no such key"),
        ({"model": {"dim": "${oc.env:HOME}"}}, '${oc.env:HOME}"'),
        ({"optim": {"kind": "magic"}}, "optim.kind=magic: choose one of plateau, inverse_sqrt"),
        ({"data": {}}, "data."),
    ],
)
def test_configs_from_files_are_not_trusted(change: dict[str, object], said: str) -> None:
    plain = freeze(experiment_of([]).settings)
    with pytest.raises(UserError) as e:
        thaw({**plain, **change})
    assert str(e.value).startswith(said)


def test_every_key_of_an_encoding_is_explained() -> None:
    for option in options_of("encoding"):
        text = (conf_dir() / "encoding" / f"{option}.yaml").read_text(encoding="utf-8")
        assert text.startswith("# @package _global_\n")  # below another line Hydra overlooks it
        for line in text.split("\n"):
            if ":" in line and not line.startswith("#") and not line.endswith(":"):
                common = any(f"{key}: " in line for key in COMMON)  # --help explains these once
                assert " # " in line or common or "${" in line or "{}" in line, line


def test_help_names_the_keys_of_an_encoding_as_a_command_line_has_them() -> None:
    for option in ("cape", "complex_order", "universal", "lstm", "rotary"):
        set_there = OmegaConf.load(conf_dir() / "encoding" / f"{option}.yaml")
        for key, value, _ in read_comments("encoding", option):
            there: Any = OmegaConf.to_container(set_there)
            for name in key.split("."):
                there = there[name]
            assert {"value": there} == OmegaConf.to_container(OmegaConf.create(f"value: {value}"))


def test_every_entry_may_be_told_where_and_at() -> None:
    rotary = experiment_of(["encoding=rotary", "encoding.rotary.where=decoder"]).settings
    assert rotary.encoding["rotary"]["where"] == "decoder"
    words = ["encoding=absolute", "encoding.absolute.at={shift: {k: 9}}"]
    assert experiment_of(words).settings.encoding["absolute"]["at"] == {"shift": {"k": 9}}
    words = ["encoding=absolute", "encoding.absolute.at.index.start=1"]
    assert experiment_of(words).settings.encoding["absolute"]["at"]["index"]["start"] == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("encoding=relative encoding.rotary.where=decoder",
         "encoding.rotary.where=decoder: rotary is not chosen; choose one of relative"),
        ("encoding=rotary encoding.rotray.at=shift",
         "encoding.rotray.at=shift: rotray is not chosen; did you mean rotary?"),
    ],
)  # fmt: skip
def test_keys_of_an_encoding_that_is_not_chosen_are_rejected(overrides: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        experiment_of(overrides.split())
    assert message in str(error.value)
