"""The card of an exported model: code that translates with it, its limits, results of the proof.

Its front matter follows https://huggingface.co/docs/hub/model-cards. Its Python, card_code.jinja,
translates where nmt is not installed. Like `nmt-translate`, it normalises a line
(nmt.text.tokenizer, but for lone surrogates, which no file holds), segments it, searches, and joins
the pieces (curly quotes as Moses joins them).
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from omegaconf import OmegaConf

from nmt import __version__
from nmt.exchange.ctranslate2_names import is_ranked_anew, list_prefixes
from nmt.exchange.interface import Export, ExportEngine
from nmt.exchange.settings import UNNAMED
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.languages import languages_of, short_code
from nmt.text.tokenizer import CONTROL, INVISIBLE
from nmt.text.unigram import CODE, MarianSegmenter, Unigram, language_codes

EXAMPLE = "a line"  # as good as any where the language is unknown
CODES, PIECES = "bpe.codes", "bpe.vocabulary"  # of the source, in the formats of subword-nmt
NO_MERGE = "\u2581 \u2581"  # of what no normalised text has: subword-nmt reads no empty list

log = logging.getLogger(__name__)


def write_card(
    prepared: Export,
    engine: ExportEngine,
    certificate: Mapping[str, Any],
    path: str,
    title: str,
    license: str | None = None,
) -> bytes:
    """The text of README.md for a model that was written to a path."""
    trained = prepared.trained
    languages = _list_languages(trained)
    front: dict[str, Any] = {
        "language": languages,
        "license": license,
        "library_name": engine.on_hub,
        "pipeline_tag": "translation",
        "tags": ["translation", *trained.settings.encoding],
    }
    source, *targets = (f"`{code}`" for code in languages or [""])
    sides = trained.source.vocabulary, trained.target.vocabulary
    before = next(iter(list_prefixes(trained.settings.decode, *sides)[0]), None)
    codes = [*language_codes(trained.source.vocabulary)]
    text = render(
        "model_card.jinja",
        front=OmegaConf.to_yaml(OmegaConf.create({k: v for k, v in front.items() if v})),
        pair=f" from {source} to {', '.join(targets)}" if targets else "",
        code=prepared.code and prepared.code(path),
        example=" ".join([*codes[: before is None], EXAMPLE]),
        sentences=write_sentences(certificate),
        decode=trained.settings.decode,
        version=__version__,
        prepared=prepared,
        engine=engine,
        title=title,
        path=path,
        before=before,
        codes=codes,
    )
    return text.encode(errors="replace")


def report(certificate: Mapping[str, Any]) -> None:
    """Log a certificate, sentence by sentence."""
    for sentence in write_sentences(certificate):
        log.info("%s", sentence)


def write_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """A certificate in words, most important first."""
    return render("certificate.jinja", all=certificate).strip().split("\n")


def render(template: str, **values: Any) -> str:
    """The text of a template of this folder."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters["literal"] = _literal
    return templates.get_template(template).render(values)


def _list_languages(trained: Trained) -> list[str]:
    """The code of the source, then those of the targets; none where one is unknown.

    A model that knows its targets as `>>fr<<` translates into the chosen one, or into all, and into
    that of its data if a corpus has no tag.
    """
    source, *targets = languages_of(trained.settings)
    if codes := [*language_codes(trained.source.vocabulary)]:
        chosen = trained.settings.decode.source_language
        corpora = getattr(trained.settings.data, "corpora", {}).values()
        if chosen or all(corpus.tag for corpus in corpora):
            targets = []
        targets += [short_code(code.strip("<>")) for code in ([chosen] if chosen else codes)]
    languages = [source, *dict.fromkeys(targets)]
    return [] if UNNAMED in languages else languages


def write_program(
    trained: Trained, directory: str, most: int | None, classes: Sequence[str] = ()
) -> str:
    """The Python for a directory, of CTranslate2 or of classes of transformers.

    `most`: pieces of the longest output for which it has positions; None: any number. `classes`: of
    the model and the tokenizer. For CTranslate2 it reads the files of `list_files`, and the options
    of translate_batch in certificate.json.
    """
    source, target = trained.source.segmenter, trained.target.segmenter
    decode = trained.settings.decode.by_beam()
    sides = trained.source.vocabulary, trained.target.vocabulary
    source_prefix, target_prefix = list_prefixes(decode, *sides)
    return render(
        "card_code.jinja",
        directory=directory,
        most=most,
        source=source,
        target=target,
        decode=decode,
        ranked_anew=is_ranked_anew(decode),
        form=source.tokenizer.normalize,
        bpe=isinstance(source, Bpe),
        target_bpe=isinstance(target, Bpe),
        languages=isinstance(source, MarianSegmenter),  # the first word of a line names one
        joins=isinstance(target, Unigram) and target.joins,  # by its SentencePiece model
        invisible=INVISIBLE.pattern,
        control=CONTROL.pattern,
        code=CODE.pattern,
        classes=classes,
        source_language=next(iter(source_prefix), None),
        target_language=next(iter(target_prefix), None),
        symbols=source.tokenizer.symbol_pattern,
        CODES=CODES,
        PIECES=PIECES,
    )


def list_files(trained: Trained) -> dict[str, bytes]:
    """The files, by name, that the Python reads in addition to CTranslate2's; and target.spm."""
    written = {
        f"{name}.spm": side.segmenter.model
        for name, side in (("source", trained.source), ("target", trained.target))
        if isinstance(side.segmenter, Unigram)
    }
    if isinstance(bpe := trained.source.segmenter, Bpe):
        written[CODES] = _file(["#version: 0.2", *(bpe.merges or [NO_MERGE])])
        if bpe.pieces:
            written[PIECES] = _file([f"{piece} 1" for piece in bpe.pieces])
    return written


def _literal(text: str) -> str:
    """A text as a Python literal in ASCII."""
    escaped = ascii(text)[1:-1].replace('"', '\\"')
    return f'"{escaped}"'


def _file(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
