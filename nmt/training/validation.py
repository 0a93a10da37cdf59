"""The development text at a checkpoint: its perplexity, and BLEU or chrF of its translations."""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace

import sacrebleu
import torch

from nmt.config.settings import RESTRICTIONS, Settings
from nmt.corpus.batches import Batch
from nmt.corpus.grouping import by_length
from nmt.corpus.pairs import Pairs
from nmt.corpus.prepare import Prepared
from nmt.decode.engine import Source, within_table
from nmt.decode.torch_engine import TorchEngine
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.languages import languages_of
from nmt.training import loss
from nmt.training.distributed import SINGLE, World
from nmt.training.feed import to_device


def perplexity(
    model: Transformer,
    batches: Iterable[Batch],
    device: torch.device,
    autocast: AbstractContextManager[None],
    world: World = SINGLE,
) -> float:
    """Return exp of the mean negative log-likelihood per token, EOS included, unsmoothed.

    The ranks share the batches, and all get the same result. The random numbers of training stay
    the same.
    """
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    gpus = [device] if device.type == "cuda" else []
    model.eval()
    with torch.random.fork_rng(gpus), torch.no_grad(), autocast:
        for on_host in world.shard(batches):
            batch = to_device(on_host, device)
            states = loss.target_states(model.hidden, batch)
            _, likelihoods = loss.smoothed_loss(states, model.output, batch.labels, 0.0)
            total += likelihoods.double().sum()
            tokens += len(batch.labels)
    model.train()
    sums = torch.tensor([float(total), tokens], dtype=torch.float64)
    nll, count = world.all_reduce(sums).tolist()
    mean = nll / count
    return math.exp(mean) if mean < 700 else math.inf  # exp(710) is no float


def dev_score(model: Transformer, settings: Settings, prepared: Prepared) -> float:
    """Corpus BLEU or chrF of greedy translations of the first trainer.dev_lines pairs, 0 to 100.

    References are decoded from pieces, too, so they lack what the segmenter cannot restore, such as
    unknown characters. The random numbers of training stay the same. The search is in float32, for
    at most twice as many pieces as the source and 20 more. Of decode.*, only languages and target
    lengths have an effect.
    """
    trainer, decode = settings.trainer, settings.decode
    greedy = replace(
        decode.by_beam(), **RESTRICTIONS, beam_size=1, precision="float32",
        position_scale=1.0, unknown="forbid",
        target_length="ratio",
    )  # fmt: skip
    model.eval()
    trained = Trained(settings, model, prepared.source, prepared.target, prepared.facts)
    engine = TorchEngine([trained], greedy)
    hypotheses, references = [], []
    lengths = (prepared.dev.lengths["source"][: trainer.dev_lines] + 1).tolist()
    for group in by_length(lengths, greedy.batch_tokens):
        sources = [_source(prepared.dev, i, engine.target_limit) for i in group]
        for i, (best,) in zip(group, engine.search(sources, 1), strict=True):
            hypotheses.append(prepared.target.text(best.ids))
            references.append(prepared.target.text(prepared.dev.pair(i)[1].tolist()[:-1]))
    model.train()
    if trainer.dev_metric == "chrf":
        return sacrebleu.CHRF().corpus_score(hypotheses, [references]).score
    return bleu(settings).corpus_score(hypotheses, [references]).score


def bleu(settings: Settings) -> sacrebleu.BLEU:
    """Make BLEU for the target language; UserError if its tokenizer is not installed."""
    language = languages_of(settings)[1]
    try:
        return sacrebleu.BLEU(trg_lang=language, force=True)
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise UserError(
            f"trainer.dev_metric=bleu: {reason}; install sacrebleu[{language}], or choose chrf"
        ) from None


def _source(store: Pairs, i: int, table: int | None) -> Source:
    """Make the source of pair i, with its columns and the limit of its output."""
    ids, start = store.pair(i)[0].tolist(), int(store.offsets["source"][i])
    columns = {
        name: store.columns[name][start : start + len(ids)].tolist()
        if per == "word"
        else [int(store.columns[name][i])]
        for name, per in store.per.items()
    }
    return Source(ids, columns, limit=within_table(2 * (len(ids) - 1) + 20, table))
