"""Tying, norms, dropout, the cache, and what keeps the fused kernel away."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.checks import preflight
from nmt.config.settings import Settings
from nmt.errors import UserError
from nmt.model.cache import Cache
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def test_tied_matrices_are_one(tiny: Make) -> None:
    model = tiny("model.tie=all", "segmenter.shared_vocabulary=true")
    assert model.output.weight is model.target_embedding.weight is model.source_embedding.weight
    model = tiny("model.tie=target")
    assert model.output.weight is model.target_embedding.weight
    assert model.source_embedding.weight is not model.target_embedding.weight


def test_post_norm_leaves_each_layer_normalised(tiny: Make, ids: Ids) -> None:
    model = tiny("model.norm=post")
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.ones_(module.weight)
            torch.nn.init.zeros_(module.bias)
    x = model.encode(ids(2, 5))[0]
    assert torch.allclose(x.mean(-1), torch.zeros(2, 5), atol=1e-5)
    assert torch.allclose(x.var(-1, unbiased=False), torch.ones(2, 5), atol=1e-2)


@pytest.mark.parametrize("key", ["dropout", "attention_dropout", "feedforward_dropout"])
def test_each_dropout_acts_in_training_only(key: str, tiny: Make, ids: Ids) -> None:
    off = ["model.dropout=0", "model.attention_dropout=0", "model.feedforward_dropout=0"]
    model = tiny(*off, f"model.{key}=0.5")
    source, target = ids(2, 5), ids(2, 5)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


def test_scores_and_values_keep_the_kernel_away(tiny: Make) -> None:
    assert not tiny("encoding=relative").encoder_encodings.fusible(0)
    assert not tiny("encoding=relative_key").decoder_encodings.fusible(0)


def test_a_cache_grows_and_keeps_what_it_had() -> None:
    cache = Cache()
    parts = [torch.randn(2, 3, n, 4) for n in (1, 20, 1, 40)]
    for part in parts:
        k, v = cache.append(part, -part)
    assert torch.equal(k, torch.cat(parts, 2)) and torch.equal(v, -k)
    cache.reorder(torch.tensor([1, 1, 0]))
    assert torch.equal(cache.all()[0], k[[1, 1, 0]])


@pytest.mark.parametrize(
    "words, said",
    [
        (["model.heads=3"], "model.heads=3: must divide model.dim=16"),
        (["model.tie=all"], "needs segmenter.shared_vocabulary=true"),
        (["encoding=rotary", "model.heads=16"], "encoding.rotary: sinusoids need an even width"),
        (["trainer.max_epochs=null"], "give one of them"),
    ],
)
def test_impossible_choices_are_refused_early(
    words: list[str], said: str, settings_of: Callable[..., Settings]
) -> None:
    with pytest.raises(UserError) as e:
        preflight.check(settings_of(*words))
    assert said in str(e.value)
