"""The Python on a model card: lines that translate with an export where nmt is not installed.

They do with a line what `nmt-translate` does: normalise it (nmt.text.tokenizer, but for lone
surrogates, which no file holds), segment it, search, join the pieces (curly quotes as Moses joins
them). They stand in card_code.jinja. A certificate counts what these very lines make of the
samples (`count_equal`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmt.decode.split import is_sentencex_installed
from nmt.exchange.ctranslate2_names import is_ranked_anew, prefixes
from nmt.exchange.proof import translate_best
from nmt.modeldir import Trained
from nmt.system.progress import track
from nmt.text.bpe import Bpe
from nmt.text.tokenizer import CONTROL, INVISIBLE
from nmt.text.unigram import CODE, MarianSegmenter, Unigram, language_codes

EXAMPLE = "a line"  # as good as any where the language is unknown
CODES, PIECES = "bpe.codes", "bpe.vocabulary"  # of the source, in the formats of subword-nmt
NO_MERGE = "\u2581 \u2581"  # of what no normalised text has: subword-nmt reads no empty list


def markdown(code: str, trained: Trained) -> str:
    """The lines with one that calls them, and what one has to know of them."""
    codes, decode = [*language_codes(trained.source.vocabulary)], trained.settings.decode
    before, _ = prefixes(decode, trained.source.vocabulary, trained.target.vocabulary)
    example = " ".join([*codes[: not before], EXAMPLE])
    text = f"```python\n{code}\n\n\nprint(translate({_literal(example)}))\n```\n"
    if before and before[0] in codes:
        text += f"\nThey put `{before[0]}` before each line, the language of its translation.\n"
    elif codes:
        names = ", ".join(f"`{name}`" for name in codes)
        text += f"\nThe first word of a line names the language of its translation: {names}.\n"
    if trained.source.protection.patterns:
        text += (
            "\nnmt-translate keeps the strings that patterns of this model match, such as URLs, as "
            "they are; these lines translate them (`data.protected`).\n"
        )
    if decode != decode.by_beam():
        text += (
            "\nnmt-translate samples from this model, or chooses among several outputs "
            f"(`decode.method={decode.method}`, `decode.mbr={decode.mbr}`); these lines search.\n"
        )
    return text


def count_equal(trained: Trained, code: str, lines: Sequence[str]) -> dict[str, int]:
    """How many lines the lines of Python translate as `nmt-translate` does; texts are compared.

    `finished`: translations by nmt-translate that end within their limit.
    """
    names: dict[str, Any] = {}
    exec(code, names)  # ours; what comes from a model stands in it as a literal
    decode = trained.settings.decode
    if not is_sentencex_installed():
        decode = replace(decode, split="lines")
    ours = translate_best(trained, lines, decode, "as nmt-translate does")
    translated = map(names["translate"], lines)
    theirs = track(translated, "by the lines of the card", [1] * len(lines))
    return {
        "compared": len(lines),
        "equal": sum(one.text == other for one, other in zip(ours, theirs, strict=True)),
        "finished": sum(translation.finished for translation in ours),
    }


def program(trained: Trained, place: str, most: int | None, classes: Sequence[str] = ()) -> str:
    """The lines for a directory, at `place`, of CTranslate2, or of classes of transformers.

    `most`: pieces of the longest output that its tables are right for; None: any. Those for
    CTranslate2 read certificate.json, whose `options` are those of translate_batch, and `files`.
    `classes`: for model and tokenizer.
    """
    source, target = trained.source.segmenter, trained.target.segmenter
    decode = trained.settings.decode.by_beam()
    sides = trained.source.vocabulary, trained.target.vocabulary
    source_prefix, target_prefix = prefixes(decode, *sides)
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    templates.filters["literal"] = _literal
    return templates.get_template("card_code.jinja").render(
        place=place,
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


def files(trained: Trained) -> dict[str, bytes]:
    """The files, by name, that the lines read in addition to CTranslate2's; and target.spm."""
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
    """A text as it stands in Python, in ASCII."""
    escaped = ascii(text)[1:-1].replace('"', '\\"')
    return f'"{escaped}"'


def _file(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
