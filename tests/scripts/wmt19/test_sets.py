"""The stage tests: sets from directories, from sacreBLEU's registry, and from nowhere."""

import pytest
from sacrebleu.dataset import DATASETS

from scripts.wmt19 import main
from tests.scripts.wmt19 import miniature
from tests.scripts.wmt19.conftest import Make, lines


def test_a_set_that_changes_is_read_again(mini: Make) -> None:
    it = mini()
    assert main(it.words("tests")) == 0
    path = it.folder / "sets" / "newstest2015.en"
    path.write_bytes(path.read_bytes().replace(b" ", b"  ", 1).removesuffix(b"\n"))
    assert main(it.words("tests")) == 0
    for copy in (it.root / "test" / path.name, it.root / "dev.en"):
        assert copy.read_bytes() == path.read_bytes() + b"\n"


def test_sets_come_from_sacrebleu(
    mini: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its files where it keeps them, its registry needs no network."""
    it = mini()
    home = it.folder / "sacrebleu"
    for name, known in (("newstest2015", "wmt15"), ("newstest2014", "wmt14/full")):
        (home / known).mkdir(parents=True)
        monkeypatch.setattr(DATASETS[known], "_outdir", str(home / known))
        for code, field in (("de", "src"), ("en", "ref")):
            data = (it.folder / "sets" / f"{name}.{code}").read_bytes()
            (home / known / f"{known.replace('/', '_')}.de-en.{field}").write_bytes(data)
            (it.folder / "sets" / f"{name}.{code}").unlink()
        for more in ("docid", "genre", "origlang"):
            (home / known / f"{known.replace('/', '_')}.de-en.{more}").write_bytes(b"x\n")
    path = home / "wmt15" / "wmt15.de-en.src"
    whole = path.read_bytes()
    path.write_bytes(b"cut by a full disk")
    assert main(it.words("tests")) == 65
    assert f"{path} and " in capsys.readouterr().err
    path.write_bytes(whole)
    assert main(it.words("tests")) == 0
    wanted = miniature.pairs(it.name, 7, "newstest2015")
    assert lines(it.root / "dev.de") == [pair[0] for pair in wanted]
