"""Development text translated at a checkpoint, and scored by BLEU or chrF (trainer.dev_metric)."""

from collections.abc import Iterator
from dataclasses import replace

import sacrebleu

from nmt.config import RESTRICTIONS, Settings
from nmt.data.grouping import by_length
from nmt.data.languages import languages_of
from nmt.data.prepare import Prepared
from nmt.decode.sources import Source
from nmt.decode.torch_engine import TorchEngine
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained


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
        target_length="ratio" if decode.target_length == "given" else decode.target_length,
    )  # fmt: skip
    model.eval()
    try:
        trained = Trained(settings, model, prepared.source, prepared.target, prepared.facts)
        engine = TorchEngine([trained], greedy)
        sources, references = zip(*_pairs(prepared, engine, trainer.dev_lines), strict=True)
        hypotheses = [""] * len(sources)
        lengths = [len(source.ids) for source in sources]
        for group in by_length(lengths, greedy.batch_tokens):
            for place, (best,) in zip(
                group, engine.search([sources[i] for i in group], 1), strict=True
            ):
                hypotheses[place] = prepared.target.text(best.ids)
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


def _pairs(
    prepared: Prepared, engine: TorchEngine, lines: int | None
) -> Iterator[tuple[Source, str]]:
    """Sources and reference texts of the development pairs."""
    store, table = prepared.dev, engine.target_limit
    for i in range(min(len(store), lines or len(store))):
        source, target = store.pair(i)
        start, end = (int(place) for place in store.offsets["source"][i : i + 2])
        columns = {
            name: store.columns[name][start:end]
            if per == "word"
            else store.columns[name][i : i + 1]
            for name, per in store.per.items()
        }
        limit = 2 * (len(source) - 1) + 20
        yield (
            Source(
                source.tolist(),
                {name: values.tolist() for name, values in columns.items()},
                line=int(store.lines[i]),
                limit=limit if table is None else min(limit, table - 1),
            ),
            prepared.target.text(target.tolist()[:-1]),
        )
