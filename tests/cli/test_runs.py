"""The paper's ten training runs, at each scale."""

from functools import cache

import pytest

from nmt.config.compose import Experiment, experiment_of
from nmt.errors import UserError

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


@cache
def of_paper(run: str) -> Experiment:
    """A run of the paper, composed once."""
    return experiment_of([f"run={run}", "scale=wmt19"])


@pytest.mark.parametrize("run", PAPER)
def test_each_run_is_what_the_paper_says(run: str) -> None:
    encodings, limit, corpus = PAPER[run]
    settings = of_paper(run).settings
    assert list(settings.encoding) == encodings and settings.data.max_length == limit
    if "absolute" in encodings:
        assert settings.encoding["absolute"]["at"] == {"index": {"start": 1}}
    if "relative" in encodings:
        assert settings.encoding["relative"]["tau"] == 16
        assert settings.encoding["relative"]["key"] and settings.encoding["relative"]["value"]
    if run == "R7":
        assert settings.encoding["relative_key"]["value"] is False
    assert settings.data.name == corpus
    languages = settings.data.source_language, settings.data.target_language
    assert languages == (("zh", "en") if run in ("R9", "R10") else ("de", "en"))
    if run in ("R9", "R10"):
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


def test_runs_differ_in_encoding_limit_and_corpus_alone() -> None:
    first = of_paper("R1")
    for run in PAPER:
        for group in ("model", "optim", "trainer", "decode"):
            assert getattr(of_paper(run).settings, group) == getattr(first.settings, group)
    assert len({of_paper(run).run for run in PAPER}) == 10


def test_smaller_scales_have_the_same_runs_on_other_text() -> None:
    toy = experiment_of(["run=R5", "scale=toy"]).settings
    assert (toy.data.kind, toy.data.max_length, list(toy.encoding)) == ("toy", 36, ["relative"])
    small = experiment_of(["run=R4", "scale=small", "data.root=x"]).settings
    assert (small.data.kind, small.data.max_length) == ("files", 38)
    with pytest.raises(UserError, match=r"^run=R9 scale=toy.*: there is no data="):
        experiment_of(["run=R9", "scale=toy"])
