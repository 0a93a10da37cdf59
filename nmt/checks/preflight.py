"""Settings that cannot work are refused before any text is read, by trying a small model."""

import logging

import torch

from nmt.build import check_languages, freeze, meta_model, shrink, transformer
from nmt.checks import example, trial
from nmt.config.data import columns_of
from nmt.config.settings import Settings
from nmt.corpus.sampling import check_sampling
from nmt.encodings.limits import max_length, why_too_short
from nmt.errors import UserError, is_out_of_memory, where_raised
from nmt.model.transformer import Transformer

VOCAB = 12  # word types of a small model
TRIED = 2**24  # numbers of a small model, above which it would cost too much time and memory

log = logging.getLogger(__name__)


def check(settings: Settings) -> None:
    """Raise UserError for choices that cannot work together, which names the key to change."""
    model = meta_model(settings, 8, 8)
    try:
        freeze(model, settings.trainer.freeze)
    except ValueError as error:
        raise UserError(f"trainer.freeze={settings.trainer.freeze}: {error}") from None
    _check_columns(settings, model)
    _check_training_text(settings, model)
    layers = settings.model.encoder_layers
    if wrong := [n for n in settings.model.drop_residual if not 1 <= n <= layers]:
        raise UserError(f"model.drop_residual={wrong}: the encoder has layers 1 to {layers}")
    if settings.model.tie == "all" and not settings.segmenter.shared:
        raise UserError("model.tie=all: needs segmenter.shared_vocabulary=true")
    _check_lengths(settings, model)
    _check_step(settings)


def _check_columns(settings: Settings, model: Transformer) -> None:
    """Refuse an encoding that reads a column which the corpus, or a language, does not have."""
    check_languages(model, settings.decode)
    offered = columns_of(settings.data)
    for site, encodings in model.sites.items():
        for e in encodings:
            for name in sorted(e.columns):
                if name not in offered:
                    has = ", ".join(sorted(offered)) or "none"
                    raise UserError(
                        f"encoding.{e.name}: reads a column {name!r} of the source, which "
                        f"this corpus does not have (it has {has}); see data.columns"
                    )
                if site != "encoder" and offered[name] != "sentence":
                    raise UserError(
                        f"encoding.{e.name}: the column {name!r} numbers source words, so it "
                        f"says nothing to where={site}"
                    )


def _check_training_text(settings: Settings, model: Transformer) -> None:
    """Refuse to join or to sample text whose columns would no longer fit, and missing borders."""
    data, offered = settings.data, columns_of(settings.data)
    if data.join_within is not None and offered.get(data.join_within) != "sentence":
        has = ", ".join(name for name, per in offered.items() if per == "sentence") or "none"
        raise UserError(
            f"data.join_within={data.join_within}: no column with an integer per line; this corpus "
            f"has {has}; see data.columns"
        )
    if data.join > 1 and model.columns:
        raise UserError(
            f"data.join={data.join}: joined lines have no columns, but the encoding "
            f"reads {', '.join(sorted(model.columns))}"
        )
    check_sampling(data, settings.segmenter.kind)
    per_word = sorted(name for name in model.columns if offered.get(name) == "word")
    if per_word and (data.bpe_dropout or data.subword_alpha is not None):
        key = "bpe_dropout" if data.bpe_dropout else "subword_alpha"
        raise UserError(
            f"data.{key}={getattr(data, key)}: text that is segmented at random has no integers "
            f"per word, but the encoding reads {', '.join(per_word)}"
        )


def _check_lengths(settings: Settings, model: Transformer) -> None:
    """Refuse tables too short for the training sentences that data.max_length lets in."""
    data = settings.data
    pieces = max(data.max_length, data.join_length or 0) if data.join > 1 else data.max_length
    decode = settings.decode
    source, target = (name is not None for name in (decode.source_language, decode.target_language))
    before = {"encoder": source, "decoder": target, "cross": source or target}  # the text
    for name, site in model.sites.items():
        most = pieces + 1 + before[name]  # eos, or bos
        for e in site:
            if (why := why_too_short(e, most)) is not None:
                limits = (max_length(e, training) for training in (True, False))
                least = min(limit for limit in limits if limit is not None) - 1 - before[name]
                key = "max_length" if pieces == data.max_length else "join_length"
                shorter = f", or data.{key}={least}" if least else ""
                more = "eos, and a language" if before[name] else "eos"
                raise UserError(
                    f"encoding.{e.name}: data.{key}={pieces} lets in so many pieces and "
                    f"{more}: {why}{shorter}"
                )


def _check_step(settings: Settings) -> None:
    """Refuse encodings with which a small model's first step fails, or that see the future."""
    small = shrink(settings)
    meta = meta_model(small, 8, 8)
    size = sum(t.numel() for t in {*meta.parameters(), *meta.buffers()})
    if size > TRIED:
        log.info("%d numbers even in a small model: no first step is tried beforehand", size)
        return
    per_sentence = [name for name, per in columns_of(settings.data).items() if per == "sentence"]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(settings.seed)
        try:
            model = transformer(small, VOCAB, VOCAB)
            text = example.text(model, per_sentence=per_sentence)
            trial.step(model, text)
            example.add_noise(model, small.model.dim)
            trial.check_invariances(model, text)
            if (moved := trial.shift(model, per_sentence)) is not None:
                trial.check_relative(model, moved)
        except trial.CheckError as e:
            raise UserError(str(e)) from None
        except Exception as e:  # any error of an encoding's hooks
            if isinstance(e, UserError) or is_out_of_memory(e):
                raise
            names = ",".join(settings.encoding)
            raise UserError(f"encoding=[{names}]: a first step fails: {where_raised(e)}") from e
