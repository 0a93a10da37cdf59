"""--columns: files parallel to a text."""

import shutil
import sys
from pathlib import Path

import pytest

from nmt import modeldir
from nmt.cli import evaluate, options, train, translate
from nmt.config.compose import experiment_of
from nmt.config.data import Column
from nmt.config.settings import freeze
from nmt.errors import UserError
from nmt.training.directory import differences
from tests.conftest import TINY


@pytest.mark.parametrize("word", ["", "heads=", "heads=a,heads=b"])
def test_wrong_words(word: str) -> None:
    with pytest.raises(UserError, match=r"expected NAME=FILE,\.\.\., each name once"):
        translate.parse_arguments(["x", "--columns", word])
    assert options.parse_columns("heads=a=b,tag=c.gz") == {"heads": "a=b", "tag": "c.gz"}
    assert translate.parse_arguments(["x"]).columns == {}
    with pytest.raises(UserError, match="stdin can be one of the texts"):
        translate.command(["x", "--columns", "heads=-"])


def test_a_model_directory_keeps_no_path_and_may_move() -> None:
    word = "+data.columns.tag={per: word,train: x/a,dev: /y/b,test: x/c}"
    here = experiment_of(["data=files", "data.root=x", word]).settings
    cut = modeldir.portable(here)
    assert cut.data.columns == {"tag": Column("word", "a", "b", "c")}
    assert differences(freeze(here), freeze(cut)) == []
    more = ["data.root=/h/x", "segmenter=spm", "segmenter.source_model=/h/de.model"]
    corpus = "+data.corpora.bt={root: /h/bt, train_source: /h/other/bt.de.gz}"
    several = experiment_of(["data=files", *more, corpus]).settings
    plain = freeze(modeldir.portable(several))
    assert "/" not in str({key: plain[key] for key in ("data", "segmenter")})
    assert plain["data"]["corpora"]["bt"]["train_source"] == "bt.de.gz"
    sentence = experiment_of(["data=files", "data.root=x", word.replace("word", "sentence")])
    assert differences(freeze(here), freeze(sentence.settings)) == [
        "data.columns.tag.per: word -> sentence"
    ]


def test_a_model_that_reads_heads_is_evaluated_on_its_own_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its config names the columns of that; of other text they have to be given."""
    monkeypatch.chdir(tmp_path)
    words = ["encoding=graformer", *TINY, "segmenter.merges=30", "trainer.max_steps=1", "name=it"]
    words += ["data.train_pairs=30", "data.train_longest=8", "data.dev_pairs=6"]
    words += ["data.test_pairs=6", "data.test_longest=8", "data.root=text", "trainer.device=cpu"]
    assert train.main([*words, "trainer.tensorboard=false", "decode.max_length_ratio=1"]) == 0
    assert (
        "nmt-translate runs/it text/test.de --columns heads=text/test.heads\n"
        in capsys.readouterr().err
    )
    shutil.rmtree("text")  # and written again
    assert evaluate.main(["runs/it", "--samples", "40", "--device", "cpu"]) == 0
    assert "test, 6 pairs" in capsys.readouterr().out
    assert translate.main(["runs/it", "text/test.de", "-o", "out"]) == 2
    assert "column heads: this model reads it" in capsys.readouterr().err
    assert not Path("out").exists()
    columns = ["--columns", "heads=text/test.heads"]
    assert translate.main(["runs/it", "text/test.de", *columns, "-o", "out"]) == 0
    whole, heads = Path("out").read_text(), Path("text/test.heads").read_bytes()
    assert whole.count("\n") == 6
    Path("crlf").write_bytes(heads.rstrip().replace(b"\n", b"\r\n"))
    with Path("text/test.de").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert translate.main(["runs/it", "--columns", "heads=crlf"]) == 0
    assert capsys.readouterr().out == whole
