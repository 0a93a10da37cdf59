"""The face of the package: quick to import, documented, and the same as what the commands do."""

import json
import math
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir

import nmt
from nmt.cli import evaluate
from nmt.config.catalog import options_of
from nmt.errors import Exit
from nmt.evaluation.options import BOUNDS
from nmt.system import machine

PIECES = [letter + end for letter in "abcdefgh" for end in ("", "@@")]


@pytest.fixture
def small(of_letters: Any) -> Any:
    """Overrides -> a model of random weights that reads and writes letters."""
    return partial(of_letters, letters=PIECES)


READ = """
import sys
from pathlib import Path

import nmt

def lines():
    files = [m.__file__ for name, m in sys.modules.items() if name.partition(".")[0] == "nmt"]
    return sum(Path(file).read_text(encoding="utf-8").count("\\n") for file in files)

print(lines(), "torch" in sys.modules, "load" in dir(nmt))
model = nmt.load(sys.argv[1])
print(lines())
nmt.translate(model, ["ab c", ""], workers=1)
print(lines())
"""


def test_importing_it_takes_no_torch_and_translating_a_third_of_the_package(
    small: Any, tmp_path: Path
) -> None:
    """So a start is quick, and a reader of this path has few files to read."""
    nmt.save(small("encoding=relative"), tmp_path / "model")
    command = [sys.executable, "-c", READ, str(tmp_path / "model")]
    shown = subprocess.run(command, capture_output=True, check=True, text=True)
    imported, torch_too, offered, loaded, translated = shown.stdout.split()
    assert int(imported) < 100 and (torch_too, offered) == ("False", "True")
    assert int(loaded) < 9_400 and int(translated) < 10_500


def test_what_it_offers_can_be_imported_and_is_documented() -> None:
    assert all(getattr(nmt, name).__doc__ for name in nmt.__all__)


def test_another_default_dtype_of_torch_changes_nothing(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = small("encoding=[absolute,relative]")
    nmt.save(trained, tmp_path / "model")
    expected = nmt.translate(trained, ["ab c"])
    monkeypatch.setattr(machine, "_machine", None)
    torch.set_default_dtype(torch.float64)
    try:
        loaded = nmt.load(tmp_path / "model")
        assert nmt.translate(loaded, ["ab c"]) == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_would_overwrite_or_could_not_be_loaded_is_not_saved(
    small: Any, tmp_path: Path
) -> None:
    trained = small("encoding=relative")
    with pytest.raises(nmt.UserError, match="exists; give another path"):
        nmt.save(trained, tmp_path)
    other = small("encoding=absolute")
    for changes, message in (
        ({"model": small("encoding=relative").model.bfloat16()}, "torch.bfloat16, its config"),
        ({"model": other.model}, "is missing"),
        ({"facts": {"step": 3}}, "facts: longest_source=?: expected an integer"),
        ({"facts": {"longest_source": 3, "x": math.nan}}, "facts['x']: Out of range float"),
    ):
        with pytest.raises(nmt.UserError, match=re.escape(message)) as error:
            nmt.save(trained._replace(**changes), tmp_path / "new" / "model")
        assert error.value.code == Exit.DATA and not (tmp_path / "new").exists()


def test_decode_keys_are_checked_and_change_nothing_but_this_call(small: Any) -> None:
    trained = small("encoding=rotary")
    lines = ["ab c de f", "gh"]
    before = nmt.translate(trained, lines)
    nmt.translate(trained, lines, position_scale=np.float64(0.25), beam_size=np.int64(1))
    assert nmt.translate(trained, lines) == before
    best = [translation.text for translation, *_ in nmt.n_best(trained, lines, 3, beam_size=4)]
    assert best == nmt.translate(trained, lines, beam_size=4)
    begun = nmt.translate(trained, lines, target_prefixes=["d", ""])
    assert begun[0].startswith("d") and begun[1] == before[1]
    with pytest.raises(nmt.UserError, match=r"decode\.beam_sise: no such key"):
        nmt.translate(trained, lines, beam_sise=3)
    with pytest.raises(nmt.UserError, match="give beam_size=9"):
        nmt.n_best(trained, lines, 9)


def test_a_line_may_have_its_end_and_characters_that_end_lines_elsewhere(small: Any) -> None:
    trained = small("encoding=relative")
    counted: list[int] = []
    texts = ["gh", "ab c\r\n", "a\u2028b\rc\x85d", ""]
    expected = nmt.translate(trained, ["gh", "ab c", "a b c d", ""], beam_size=1)
    assert nmt.translate(trained, texts, progress=counted.append, beam_size=1) == expected
    assert counted == [1, 2, 3, 4]
    assert list(nmt.translate_stream(trained, iter(texts), window=2, beam_size=1)) == expected


def test_where_it_has_no_single_answer_it_is_refused(small: Any) -> None:
    trained, text = small("encoding=relative"), ["a", "b\nc"]
    for call in (
        lambda: nmt.n_best(trained, text, 2),
        lambda: nmt.score(trained, ["a", "b"], text),
        lambda: nmt.align(trained, text, ["a", "b"]),
        lambda: nmt.translate(trained, ["a", "b"], target_prefixes=text),
        lambda: nmt.translate(trained, text),
        lambda: [*nmt.translate_stream(trained, text)],
    ):
        with pytest.raises(nmt.UserError, match=r"\[1\]: 'b\\nc' has several lines") as error:
            call()
        assert "\n" not in str(error.value)
    assert nmt.score(trained, ["a\n"], ["b\r\n"]) == nmt.score(trained, ["a"], ["b"])


def test_compose_reads_what_the_command_line_does(tmp_path: Path) -> None:
    assert str(nmt.compose(["encoding=relative", "tau=3"]).run) == "runs/toy/relative-tau3-seed1"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "narrow.yaml").write_text("defaults: [small]\nheads: 2\n")
    assert nmt.compose(["model=narrow"], config_dir=tmp_path).settings.model.heads == 2
    with pytest.raises(nmt.UserError, match="no such option"):
        nmt.compose(["model=narrow"])


def test_composing_leaves_the_applications_own_hydra_and_waits_for_other_threads(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        with ThreadPoolExecutor(2) as threads:
            runs = [str(run.run) for run in threads.map(nmt.compose, [[], ["seed=2"]] * 2)]
        assert runs == ["runs/toy/absolute-seed1", "runs/toy/absolute-seed2"] * 2
        assert compose("mine") == {"a": 1}


def test_every_encoding_is_listed_and_can_be_built() -> None:
    listed = nmt.list_encodings()
    assert sorted(facts.name for facts in listed) == options_of("encoding")
    assert all(facts.summary and facts.family for facts in listed)
    settings = nmt.compose(["encoding=[absolute,relative]"]).settings
    built = nmt.build_encodings(settings)
    assert [encoding.name for encoding in built] == ["absolute", "relative"]
    assert built[1].dims.dim == settings.model.dim and built[1].dims.site == "encoder"
    assert nmt.build_encodings(settings, "cross") == []
    with pytest.raises(nmt.UserError, match="site=head: choose among encoder"):
        nmt.build_encodings(settings, "head")


def test_evaluating_gives_the_numbers_of_the_command(tmp_path: Path) -> None:
    texts = {"a": "the dog sees a bird\nit sings\n", "b": "the dog sees birds\nit sang\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text * 20, encoding="utf-8")
    a, b, numbers = tmp_path / "a", tmp_path / "b", tmp_path / "numbers.json"
    options = nmt.EvaluationOptions(samples=40, bounds=np.array(BOUNDS))  # type: ignore[arg-type]
    report = nmt.evaluate({"right": a, "other": b}, a, a, options)
    given = [f"right={a}", f"other={b}", "--reference", str(a), "--source", str(a)]
    assert evaluate.main([*given, "--samples", "40", "-o", str(numbers)]) == 0
    typed = {"command": json.loads(numbers.read_text(encoding="utf-8"))["command"]}
    assert json.loads(numbers.read_text(encoding="utf-8")) == {**report.to_json(), **typed}
    other = report.figure("BLEU", "other")
    assert other and other.mean < 100


def test_a_text_for_a_list_and_counts_below_one_are_refused(small: Any) -> None:
    trained = small()
    text = "a text, where a list of them is expected"
    for use, message in (
        (lambda: nmt.translate(trained, "ab"), text),
        (lambda: nmt.score(trained, ["a", "b"], "ab"), text),
        (lambda: nmt.compose("encoding=relative"), text),
        (lambda: nmt.translate(trained, ["a"], workers=0), "workers=0: must be at least 1"),
        (lambda: nmt.score(trained, ["a"], ["a"], batch_tokens=0), "batch_tokens=0: must be at"),
        (lambda: nmt.list_encodings("nonexistent"), "--config-dir: name a directory"),
    ):
        with pytest.raises(nmt.UserError, match=re.escape(message)):
            use()


def test_a_model_in_training_mode_is_saved_but_not_run(small: Any, tmp_path: Path) -> None:
    trained = small()
    trained.model.train()
    nmt.save(trained, tmp_path / "model")
    for use in (
        lambda: nmt.translate([nmt.load(tmp_path / "model"), trained], ["ab"]),
        lambda: nmt.score(trained, ["a"], ["a"]),
        lambda: nmt.align(trained, ["a"], ["a"]),
    ):
        with pytest.raises(nmt.UserError, match=r"^model: in training mode, .*model\.eval\(\)$"):
            use()


def test_a_stream_is_translated_as_it_comes(small: Any, tmp_path: Path) -> None:
    trained = small("encoding=relative")
    text = ["ab c", "", "h a g", "c", "abc"]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    whole = nmt.translate(trained, text, workers=1)
    with (tmp_path / "text").open(encoding="utf-8") as file:
        assert list(nmt.translate_stream(trained, file)) == whole
    taken: list[str] = []

    def endless() -> Any:
        for line in [*text, *["never read"] * 9]:
            taken.append(line)
            yield line

    stream = nmt.translate_stream(trained, endless(), window=2)
    assert next(stream) == whole[0] and taken == text[:2]
    assert [next(stream), next(stream)] == whole[1:3] and taken == text[:4]
    with pytest.raises(nmt.UserError, match="list of them is expected"):
        list(nmt.translate_stream(trained, "ab c"))
