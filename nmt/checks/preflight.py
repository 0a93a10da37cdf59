"""Settings that cannot work are refused before any text is read, by trying a small model."""

import logging

import torch

from nmt.build import check_languages, freeze, meta_model, shrink, transformer
from nmt.checks.example import VOCAB, add_noise
from nmt.checks.properties import check_later_tokens_and_padding, require_relative
from nmt.checks.training_step import CheckError, try_step
from nmt.config.data import columns_of
from nmt.config.settings import Settings
from nmt.corpus.sampling import check_sampling
from nmt.encodings.base import least
from nmt.encodings.input.none import NoPositions
from nmt.errors import UserError, is_out_of_memory, where_raised
from nmt.model.transformer import Transformer

TRIED = 2**24  # numbers of a small model, above which it would cost too much time and memory

log = logging.getLogger(__name__)


def check(settings: Settings) -> None:
    """Raise UserError for choices that cannot work together, which names the key to change."""
    model = meta_model(settings, 8, 8)
    try:
        freeze(model, settings.trainer.freeze)
    except ValueError as error:
        raise UserError(f"trainer.freeze={settings.trainer.freeze}: {error}") from None
    for e in model.entries:
        if not (e.hooks or e.score_scale is not None or isinstance(e, NoPositions)):
            why = "its class overrides no hook of Encoding, so it would change nothing"
            raise UserError(f"encoding.{e.name}: {why}; see docs/adding-an-encoding.md")
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
    for e in model.entries:
        for name in sorted(e.columns):
            needed = "sentence" if name in e.sentence_columns else "word"
            fault = ""
            if name not in offered:
                has = ", ".join(sorted(offered)) or "none"
                fault = f"which this corpus does not have (it has {has}); see data.columns"
            elif offered[name] != needed:
                fault = f"of one integer per {offered[name]}; it needs one per {needed}"
            elif needed == "word" and e.dims.site != "encoder":
                fault = f"per word, which says nothing to where={e.dims.site}"
            if fault:
                raise UserError(
                    f"encoding.{e.name}: reads a column {name!r} of the source, {fault}"
                )


def _check_training_text(settings: Settings, model: Transformer) -> None:
    """Refuse to join or to sample text whose columns would no longer fit, and missing borders."""
    data, offered = settings.data, columns_of(settings.data)
    per_line = [name for name, per in offered.items() if per == "sentence"]
    if data.join_within is not None and data.join_within not in per_line:
        raise UserError(
            f"data.join_within={data.join_within}: no column with an integer per line; this corpus "
            f"has {', '.join(per_line) or 'none'}; see data.columns"
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
    data, decode = settings.data, settings.decode
    key, pieces = "max_length", data.max_length
    if data.join > 1 and (data.join_length or 0) > pieces:
        key, pieces = "join_length", data.join_length or 0
    source, target = (name is not None for name in (decode.source_language, decode.target_language))
    languages = {"encoder": source, "decoder": target, "cross": source or target}
    for e in model.entries:
        special = 1 + languages[e.dims.site]  # eos, or bos, and a language before the text
        longest = least(e.max_length(training) for training in (True, False))
        if longest is not None and longest < pieces + special:
            more = "eos" if special == 1 else "eos, and a language"
            shorter = f", or give data.{key}={longest - special}" if longest > special else ""
            raise UserError(
                f"encoding.{e.name}: encodes at most {longest} tokens, fewer than data.{key}="
                f"{pieces} and {more}; enlarge its table, or change at={shorter}"
            )


def _check_step(settings: Settings) -> None:
    """Refuse encodings with which a small model's first step fails, or that see the future."""
    small = shrink(settings)
    meta = meta_model(small, 8, 8)
    size = sum(t.numel() for t in {*meta.parameters(), *meta.buffers()})
    if size > TRIED:
        log.info("%d numbers even in a small model: no first step is tried beforehand", size)
        return
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(settings.seed)
        try:
            model = transformer(small, VOCAB, VOCAB)
            try_step(model)  # as training starts; noise might hide what goes wrong there
            add_noise(model, small)
            check_later_tokens_and_padding(model)
            require_relative(model)
        except CheckError as e:
            raise UserError(str(e)) from None
        except Exception as e:  # any error of an encoding's hooks
            if isinstance(e, UserError) or is_out_of_memory(e):
                raise
            names = ",".join(settings.encoding)
            raise UserError(f"encoding=[{names}]: a first step fails: {where_raised(e)}") from e
