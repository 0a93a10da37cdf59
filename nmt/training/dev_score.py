"""Development text translated at a checkpoint, and scored by BLEU or chrF (trainer.dev_metric)."""

from dataclasses import replace

import sacrebleu

from nmt.config.settings import RESTRICTIONS, Settings
from nmt.corpus.grouping import by_length
from nmt.corpus.pairs import Pairs
from nmt.corpus.prepare import Prepared
from nmt.decode.sources import Source, within_table
from nmt.decode.torch_engine import TorchEngine
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.languages import languages_of


def dev_score(model: Transformer, settings: Settings, prepared: Prepared) -> float:
    """Corpus BLEU or chrF of greedy translations of the first trainer.dev_lines pairs, 0 to 100.

    Both sides are text that is made of the pieces again, so that what the segmenter does not
    restore, such as unknown characters, is the same for all checkpoints. The random numbers that
    training will draw stay the same. Outputs are in float32, of at most twice as many pieces as
    their source and 20 more. Of decode.*, only languages and target lengths have an effect.
    """
    trainer, decode = settings.trainer, settings.decode
    greedy = replace(
        decode.by_beam(), **RESTRICTIONS, beam_size=1, precision="float32",
        position_scale=1.0, unknown="forbid",
        target_length="ratio",
    )  # fmt: skip
    model.eval()
    try:
        trained = Trained(settings, model, prepared.source, prepared.target, prepared.facts)
        engine = TorchEngine([trained], greedy)
        hypotheses, references = [], []
        lengths = (prepared.dev.lengths["source"][: trainer.dev_lines] + 1).tolist()
        for group in by_length(lengths, greedy.batch_tokens):
            sources = [_source(prepared.dev, i, engine.target_limit) for i in group]
            for i, (best,) in zip(group, engine.search(sources, 1), strict=True):
                hypotheses.append(prepared.target.text(best.ids))
                references.append(prepared.target.text(prepared.dev.pair(i)[1].tolist()[:-1]))
    finally:
        model.train()
    if trainer.dev_metric == "chrf":
        return sacrebleu.CHRF().corpus_score(hypotheses, [references]).score
    return bleu(settings).corpus_score(hypotheses, [references]).score


def bleu(settings: Settings) -> sacrebleu.BLEU:
    """BLEU for the target language; UserError where what finds its words is not installed."""
    language = languages_of(settings)[1]
    try:
        return sacrebleu.BLEU(trg_lang=language, force=True)
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise UserError(
            f"trainer.dev_metric=bleu: {reason}; install sacrebleu[{language}], or choose chrf"
        ) from None


def _source(store: Pairs, i: int, table: int | None) -> Source:
    """The source of pair i, its columns, and how long its output may be."""
    ids, start = store.pair(i)[0].tolist(), int(store.offsets["source"][i])
    columns = {
        name: store.columns[name][start : start + len(ids)].tolist()
        if per == "word"
        else [int(store.columns[name][i])]
        for name, per in store.per.items()
    }
    return Source(ids, columns, limit=within_table(2 * (len(ids) - 1) + 20, table))
