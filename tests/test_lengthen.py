"""A child goes on from its parent on joined lines, and stands beside it by length."""

import json
import math
from pathlib import Path

import pytest

from nmt import api, lengthen, modeldir
from nmt.cli.train import main as train
from nmt.config import compose
from nmt.config.settings import freeze
from nmt.errors import Exit, UserError
from nmt.evaluation.testsets import corpus_test_files
from nmt.parent import experiment_of
from nmt.system import manifest
from nmt.text.lines import read_text

TINY = [
    *("model.dim=16", "model.feedforward_dim=16", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "segmenter.merges=30"),
]
TRAINER = [
    *("trainer.device=cpu", "trainer.threads=1", "trainer.batch_tokens=300"),
    "trainer.tensorboard=false",
]
TOY = ["data.train_pairs=60", "data.train_longest=9", "data.dev_pairs=8", "data.test_pairs=10"]


@pytest.mark.slow
def test_a_child_is_trained_on_joined_lines_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = [*TRAINER, *TOY, f"runs={tmp_path}", f"data.cache={tmp_path / 'cache'}"]
    search = ["decode.alpha=0.5", "decode.beam_size=1", "decode.max_length_ratio=1"]
    assert train([*TINY, *toy, *search, "trainer.max_steps=2", "name=parent"]) == 0
    parent = modeldir.load(tmp_path / "parent")
    command = ["experiment=lengthen", f"parent={tmp_path / 'parent'}", "encoding=relative"]
    command += [*TRAINER, f"runs={tmp_path}", f"data.cache={tmp_path / 'cache'}"]
    command += ["trainer.max_steps=3", "name=child"]  # and the parent's corpus
    capsys.readouterr()
    assert train(command) == 0
    out, err = capsys.readouterr()
    child = modeldir.load(tmp_path / "child")
    assert err.startswith("corpus: toy (")
    assert "joined: " in err and "started from" in err
    assert list(child.settings.encoding) == ["relative"]
    assert child.settings.model == parent.settings.model
    longest = parent.facts["longest_source"]
    assert longest < child.facts["longest_source"] <= 100
    assert "\ntest, 10 pairs; " in out and "\ntest-joined, 5 pairs; " in out
    report = json.loads((tmp_path / "child" / "lengthened" / "report.json").read_bytes())
    assert [system["label"] for system in report["systems"]] == ["parent", "child"]
    assert report["systems"][0]["longest_trained"] == longest
    searches = [s["settings"]["decode"] for s in report["about"]["systems"].values()]
    assert searches[0] == searches[1] and searches[0]["alpha"] == 0.5
    assert searches[0]["beam_size"] == 1
    groups = [group for test in report["tests"] for group in test["groups"]]
    ends = {group["high"] for group in groups if group["high"]}
    assert ends and ends <= {longest // 2, longest, 2 * longest}
    sources, references = (
        read_text(Path(path)) for path in corpus_test_files(experiment_of(command).settings)
    )
    for label in ("parent", "child"):
        model = modeldir.load(tmp_path / label)
        scored = api.score(model, sources, references)
        loss = -sum(each.log_prob for each in scored) / sum(each.length for each in scored)
        (perplexity,) = [
            figure["mean"]
            for figure in report["figures"]
            if [figure[key] for key in ("test", "group", "system", "metric")]
            == ["test", "all", label, "perplexity"]
        ]
        assert perplexity == pytest.approx(math.exp(loss), rel=1e-6)
    assert "\nperplexity  (of the references, by piece)\n" in out
    assert "\nleft out, %  (" in out
    assert train(command) == 0, "again: nothing is trained, the same is shown"
    again = capsys.readouterr()
    assert again.out == out and "already finished" in again.err


def test_corpus_and_search_are_the_parents_unless_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("train", "dev"):
        for language in ("de", "en"):
            lines = "".join(f"das haus {number}\n" for number in range(9))
            (tmp_path / f"{part}.{language}").write_text(lines, encoding="utf-8")
    files = ["data=files", f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}"]
    files += [*TRAINER, f"runs={tmp_path}", "trainer.max_steps=1"]
    search = ["decode.beam_size=12", "decode.alpha=0"]
    assert train([*TINY, *files, *search, "name=parent"]) == 0
    child = ["experiment=lengthen", f"parent={tmp_path / 'parent'}", *files[2:], "name=c"]
    capsys.readouterr()
    assert train(child) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"corpus: files ({tmp_path}/train.de, {tmp_path}/train.en)\n")
    assert "not compared with its parent" in err and "pairs; source length" not in out
    assert "data.test_source=FILE data.test_target=FILE" in err
    assert err.endswith(f"nmt-export {tmp_path / 'c'} out/c --to ctranslate2\n")
    # repeated with a test set, as that says, it compares and trains nothing
    tests = [f"data.test_source={tmp_path / 'dev.de'}", f"data.test_target={tmp_path / 'dev.en'}"]
    assert train([*child, *tests]) == 0
    out, err = capsys.readouterr()
    assert "already finished" in err and "test, 9 pairs; source length" in out
    decode = modeldir.load(tmp_path / "c").settings.decode
    assert (decode.beam_size, decode.alpha) == (12, 0)
    longer = [*child[:-2], "name=c", "trainer.max_steps=2", "decode.beam_size=3"]
    assert train(longer) == 0 and "resuming at step 1" in capsys.readouterr().err
    decode = modeldir.load(tmp_path / "c").settings.decode
    assert (decode.beam_size, decode.alpha) == (3, 0)
    (tmp_path / "elsewhere").mkdir()
    for path in [*tmp_path.glob("*.de"), *tmp_path.glob("*.en")]:
        path.rename(tmp_path / "elsewhere" / path.name)
    assert train([*child[:-1], "name=d"]) == Exit.NO_INPUT
    assert train([*child[:-1], "name=d", f"data.root={tmp_path / 'elsewhere'}"]) == 0
    assert f"corpus: files ({tmp_path}/elsewhere/train.de, " in capsys.readouterr().err


def test_a_test_set_that_cannot_be_used_is_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = experiment_of(["data=files", "data.root=."]).settings
    manifest.write(Path("parent"), [("config.json", manifest.dump(freeze(settings)))])
    Path("test.de").write_text("das haus\n")
    Path("two.en").write_text("the house\n\n")
    arguments = ["experiment=lengthen", "parent=parent", "data=files", "data.root=.", "name=c"]
    tests = ["data.test_source=test.de", "data.test_target=two.en"]
    assert train([*arguments, *tests]) == Exit.DATA
    assert "two.en" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_parent_is_what_the_run_starts_from() -> None:
    other = ["experiment=lengthen", "parent=runs/p", "trainer.init_from=other"]
    with pytest.raises(UserError, match=r"^parent=runs/p: the run starts from other"):
        lengthen.check(compose.experiment_of(other))
    with pytest.raises(UserError, match=r"^parent=None"):
        lengthen.check(compose.experiment_of(["experiment=lengthen", "parent=null"]))
