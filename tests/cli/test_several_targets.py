"""One model for two targets: the tag before a source decides which one its translation is."""

import random
from pathlib import Path

import pytest

from nmt.cli.train import main as train
from nmt.cli.translate import main as translate
from tests.training import tiny

TARGETS = {"back": -1, "same": 1}  # the step with which the words of a source are read
SETTINGS = [
    *("data=files", "model=tiny", "model.dim=64", "model.feedforward_dim=128", "model.dropout=0"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "segmenter.tokenizer=none"),
    *("segmenter.merges=0", "encoding=absolute", "optim.lr=3e-3", "trainer.device=cpu"),
    *("trainer.threads=1", "trainer.tensorboard=false", "trainer.batch_tokens=500"),
    *("trainer.max_epochs=10", "trainer.checkpoints_per_epoch=1", "trainer.log_every=1"),
]


def write(place: Path, split: str, sources: list[list[str]], target: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for side, step in (("de", 1), (target, TARGETS[target])):
        text = "".join(" ".join(words[::step]) + "\n" for words in sources)
        (place / f"{split}.{side}").write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_a_translation_follows_its_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(1)
    texts = [draw.sample("abcdefghij", draw.randint(3, 6)) for _ in range(2100)]
    for number, target in enumerate(TARGETS):
        write(tmp_path / target, "train", texts[100 + 1000 * number :][:1000], target)
        write(tmp_path / target, "dev", texts[:100], target)
    corpora = [
        f"+data.corpora.{target}={{tag: '>>{target}<<', weight: {weight}, train_target: "
        f"train.{target}, dev_source: dev.de, dev_target: dev.{target}}}"
        for target, weight in zip(TARGETS, (3, 1), strict=True)
    ]
    places = [f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path}"]
    assert train([*SETTINGS, *places, "name=run", *corpora]) == 0
    last = tiny.lines(tmp_path / "run", "train")[-1]
    assert (last["pairs_back"], last["pairs_same"]) == (30_000, 10_000)  # exactly, in ten epochs
    for target in TARGETS:
        source = tmp_path / "tagged.de"
        tagged = [f">>{target}<< {line}\n" for line in map(" ".join, texts[:100])]
        source.write_text("".join(tagged), encoding="utf-8")
        capsys.readouterr()
        assert translate([str(tmp_path / "run"), str(source), "decode.beam_size=1"]) == 0
        found = capsys.readouterr().out.splitlines()
        wanted = [" ".join(words[:: TARGETS[target]]) for words in texts[:100]]
        right = sum(a == b for a, b in zip(found, wanted, strict=True))
        assert right >= 90, f"{target}: {right} of 100 translations"
