"""An ensemble searches by the mean of the probabilities of its members, whatever they are."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import nmt
from nmt.config.settings import Decode
from nmt.decode.engine import length_penalty
from nmt.decode.translator import Translation, Translator
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import BOS, EOS, PAD, UNK, Vocabulary
from tests.decode.copying import decode as decode_of

LETTERS = ["a", "b", "c"]
LINES = ["a b", "", "c", "b b a c"]
LIMIT = 2
Make = Callable[..., Trained]


@pytest.fixture
def member(of_letters: Make) -> Make:
    """A model of a few letters, sure enough of what it says that models differ."""
    return partial(of_letters, letters="abc", shake=0.5)


def short(**changes: Any) -> Decode:
    return decode_of(max_length_ratio=0.0, max_length_offset=LIMIT, **changes)


def translations(*members: Trained, n_best: int = 1, **changes: Any) -> list[list[Translation]]:
    first, *others = members
    return list(Translator.of(first, short(**changes), *others).translate(LINES, n_best))


def test_two_models_find_what_all_continuations_by_their_mean_say(member: Make) -> None:
    """Other encodings and sizes; the oracle reads the whole prefix anew at each step."""
    members = [
        member("encoding=relative", seed=1),
        member("encoding=absolute", "model.dim=8", seed=2),
        member("encoding=rotary", "model.decoder_layers=1", seed=3),
    ]
    found = translations(*members, n_best=5, beam_size=40)
    for line, translated in zip(LINES, found, strict=True):
        if not line:
            assert translated == [Translation("", 0.0)]
            continue
        source = torch.tensor([members[0].source.ids(line)])
        best = exhaustive([member.model for member in members], source)[:5]
        assert [t.ids for t in translated] == [ids for _, ids in best]
        assert [t.score for t in translated] == pytest.approx([s for s, _ in best], abs=1e-4)
    for one in members:  # and no member says so alone
        assert [t.ids for t, *_ in translations(one)] != [t.ids for t, *_ in found]


@torch.inference_mode()
def exhaustive(models: list[Transformer], source: Tensor) -> list[tuple[float, tuple[int, ...]]]:
    """All outputs and their scores, the best first; ends at the limit as in `search`."""
    letters = [i for i in range(models[0].output.out_features) if i not in (PAD, BOS, EOS, UNK)]
    found = []
    for length in range(LIMIT + 1):
        for ids in itertools.product(letters, repeat=length):
            prefix = torch.tensor([[BOS, *ids]])
            each = [model(source, prefix)[0].double().softmax(-1) for model in models]
            log_probs = torch.stack(each).mean(0).log()  # [length + 1, vocab]
            total = sum(float(log_probs[at, token]) for at, token in enumerate(ids))
            last = log_probs[-1, [EOS, *letters]]
            ends = length < LIMIT or int(last.argmax()) == 0  # else it is closed as it is
            total += float(last[0]) if ends else 0.0
            found.append((total / length_penalty(length + ends, short().alpha), ids))
    return sorted(found, reverse=True)


def test_an_ensemble_reads_no_more_than_each_of_its_members(member: Make) -> None:
    long, less = member("encoding=learned"), member("encoding=learned", "encoding.learned.size=4")
    less = less._replace(facts={"longest_source": 2})
    some = Translator.of(long, short(), less)
    assert (some.engine.source_limit, some.engine.target_limit) == (4, 4)
    assert some.reader.longest_trained == 2
    assert Translator.of(long, short()).reader.longest_trained == 30
    unknown = long._replace(facts={"longest_source": None})
    assert Translator.of(unknown, short(), less).reader.longest_trained == 2
    assert Translator.of(unknown, short(), unknown).reader.longest_trained is None


def test_members_read_the_columns_that_they_know(member: Make) -> None:
    tree, plain = member("encoding=spr_relative"), member("encoding=relative", seed=1)
    some = Translator.of(plain, short(), tree)
    assert "heads" in some.engine.columns
    heads = {"heads": ["0 1", "", "0", "2 0 2 2"]}
    others = {"heads": ["2 0", "", "0", "0 1 1 1"]}
    found, other = (list(some.translate(LINES, 1, given)) for given in (heads, others))
    assert found != other


def test_other_vocabularies_and_segmenters_are_refused(member: Make) -> None:
    one = member("encoding=relative")
    other = one._replace(source=Side(one.source.segmenter, Vocabulary(["a", "b", "d"])))
    with pytest.raises(UserError, match=r"^model 3 of 3: segmenter or vocabulary of the source"):
        Translator.of(one, short(), one, other)
    segmenter = Bpe(Tokenizer("nfkc", "none", "de"), [], LETTERS)
    other = one._replace(target=Side(segmenter, Vocabulary(LETTERS)))
    with pytest.raises(UserError, match=r"^model 2 of 2: segmenter or vocabulary of the target"):
        Translator.of(one, short(), other)


def test_the_python_api_takes_a_list(member: Make) -> None:
    members = [member("encoding=relative", seed=1), member("encoding=absolute", seed=2)]
    brief: dict[str, Any] = {"max_length_ratio": 0, "max_length_offset": LIMIT, "beam_size": 2}
    brief |= {"alpha": 0.6, "batch_tokens": 60}
    found = nmt.translate(members, LINES, **brief)
    assert found == [best.text for best, *_ in translations(*members)]
    assert nmt.translate(members[0], LINES, **brief) == nmt.translate(members[:1], LINES, **brief)
