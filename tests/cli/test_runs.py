"""The paper's ten training runs, at each scale."""

import re
from functools import cache

import pytest

from nmt.cli.help import help_page
from nmt.cli.train import MANUAL
from nmt.config.catalog import conf_dir, options_of
from nmt.config.compose import Experiment, experiment_of
from nmt.config.data import Segmentation
from nmt.errors import UserError
from tests.fast import fast_first

# Rosendahl et al. (2019): encoding, longest sentence in training, corpus of each training run
PAPER: dict[str, tuple[list[str], int, str]] = {
    "R1": (["absolute"], 100, "wmt19_deen"),
    "R2": (["relative"], 100, "wmt19_deen"),
    "R3": (["lstm"], 100, "wmt19_deen"),
    "R4": (["absolute"], 75, "wmt19_deen"),
    "R5": (["relative"], 75, "wmt19_deen"),
    "R6": (["relative_sinusoidal"], 100, "wmt19_deen"),
    "R7": (["relative_key"], 100, "wmt19_deen"),
    "R8": (["absolute", "relative"], 100, "wmt19_deen"),
    "R9": (["absolute"], 100, "wmt19_zhen"),
    "R10": (["relative"], 100, "wmt19_zhen"),
}
SCALES = {"wmt19": (100, 75, []), "toy": (48, 36, []), "small": (50, 38, ["data.root=x"])}


@cache
def of_scale(run: str, scale: str) -> Experiment:
    """A run at a scale, composed once."""
    return experiment_of([f"run={run}", f"scale={scale}", *SCALES[scale][2]])


@pytest.mark.parametrize("scale", fast_first(1, SCALES))
@pytest.mark.parametrize("run", PAPER)
def test_each_run_is_what_the_paper_says(run: str, scale: str) -> None:
    encodings, limit, corpus = PAPER[run]
    full, short, _ = SCALES[scale]
    if corpus == "wmt19_zhen" and scale != "wmt19":
        with pytest.raises(UserError, match=rf"^run={run} scale={scale}.*: there is no data="):
            of_scale(run, scale)
        return
    settings = of_scale(run, scale).settings
    assert list(settings.encoding) == encodings
    assert settings.data.max_length == (full if limit == 100 else short)
    if "absolute" in encodings:
        assert settings.encoding["absolute"]["at"] == {"index": {"start": 1}}
    if "relative" in encodings:
        assert settings.encoding["relative"]["tau"] == 16
        assert settings.encoding["relative"]["key"] and settings.encoding["relative"]["value"]
    if run == "R7":
        assert settings.encoding["relative_key"]["value"] is False
    if scale != "wmt19":
        return
    assert settings.data.name == corpus
    languages = settings.data.source_language, settings.data.target_language
    assert languages == (("zh", "en") if run in ("R9", "R10") else ("de", "en"))
    if run in ("R9", "R10"):
        assert isinstance(settings.segmenter, Segmentation)
        assert settings.segmenter.vocabulary_size == 32000
        assert settings.segmenter.training_lines == 4_000_000
        assert not settings.segmenter.shared_vocabulary
    else:
        assert (settings.segmenter.kind, settings.segmenter.merges) == ("bpe", 50000)
    model, optim = settings.model, settings.optim
    sizes = (model.encoder_layers, model.decoder_layers, model.dim, model.feedforward_dim)
    assert (*sizes, model.heads) == (6, 6, 512, 2048, 8)
    assert (optim.kind, optim.lr) == ("plateau", 3e-4)
    assert (settings.trainer.batch_tokens, settings.trainer.checkpoints_per_epoch) == (4700, 8)


@pytest.mark.parametrize("scale", fast_first(1, SCALES))
def test_runs_of_a_scale_differ_in_encoding_limit_and_corpus_alone(scale: str) -> None:
    names = set()
    for run in list(PAPER)[: 10 if scale == "wmt19" else 8]:
        asked, first = of_scale(run, scale), of_scale("R1", scale)
        for group in ("model", "optim", "trainer", "decode"):
            assert getattr(asked.settings, group) == getattr(first.settings, group)
        names.add(asked.run)
    assert len(names) == (10 if scale == "wmt19" else 8)


def test_kinds_of_corpora() -> None:
    assert experiment_of(["run=R1", "scale=toy"]).settings.data.kind == "toy"
    small = experiment_of(["run=R1", "scale=small", "data.root=x"])
    assert small.settings.data.kind == "files"


def test_help_and_comments_explain_every_new_key() -> None:
    text = help_page(MANUAL, "all")
    for group in ("scale", "run", "experiment"):
        for option in options_of(group):
            assert re.search(rf"^   [ *] {option} +\S", text, re.M), option
    for key in (
        "jobs",
        "samples",
        "attention",
        "bounds",
        "limits.full",
        "tests.single",
        "tests.join",
    ):
        assert f"  {key} " in text
    files = [*(conf_dir() / "scale").glob("*"), *(conf_dir() / "run").glob("*")]
    files += [
        *(conf_dir() / "experiment").glob("table*"),
        conf_dir() / "experiment/parts/table.yaml",
    ]
    for path in files:
        assert path.read_text(encoding="utf-8").startswith("# @package _global_\n# ")
