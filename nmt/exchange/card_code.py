"""The Python on a model card: lines that translate with an export where nmt is not installed.

They do with a line what `nmt-translate` does: normalise it, cut it into pieces, search, join the
pieces. A certificate counts what these very lines make of the samples (`compared`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nmt.config import Decode
from nmt.data.bpe import Bpe
from nmt.data.marian import CODE, MarianSegmenter
from nmt.data.normalise import CONTROL, INVISIBLE
from nmt.data.progress import shown
from nmt.data.segmenter import Segmenter
from nmt.data.unigram import Unigram
from nmt.exchange.ctranslate2_scorer import is_ranked_anew
from nmt.exchange.proof import best
from nmt.modeldir import Trained

EXAMPLE = "a line"  # as good as any where the language is unknown
CODES, PIECES = "bpe.codes", "bpe.vocabulary"  # of the source, in the formats of subword-nmt
NO_MERGE = "\u2581 \u2581"  # of what no normalised text has: subword-nmt reads no empty list
IMPORTS = {  # what the lines use -> the line that imports it
    "json.": "import json",
    "re.": "import re",
    "unicodedata.": "import unicodedata",
    "Path(": "from pathlib import Path",
    "": "",
    "ctranslate2.": "import ctranslate2",
    "Moses": "from sacremoses import MosesDetokenizer, MosesTokenizer",
    "SentencePieceProcessor(": "from sentencepiece import SentencePieceProcessor",
    "apply_bpe.": "from subword_nmt import apply_bpe",
    "Marian": "from transformers import MarianMTModel, MarianTokenizer",
}


class _Step(NamedTuple):
    """A step of translation: lines of Python, without line ends."""

    setup: Sequence[str] = ()
    body: Sequence[str] = ()  # of the function


def markdown(code: str, trained: Trained) -> str:
    """The lines with one that calls them, and what one has to know of them."""
    codes = [*filter(CODE.fullmatch, trained.source.vocabulary.to_json())]
    example = " ".join([*codes[:1], EXAMPLE])
    text = f"```python\n{code}\n\n\nprint(translate({_literal(example)}))\n```\n"
    if codes:
        names = ", ".join(f"`{name}`" for name in codes)
        text += f"\nThe first word of a line names the language of its translation: {names}.\n"
    decode = trained.settings.decode
    if decode != decode.by_beam():
        text += (
            "\nnmt-translate samples from this model, or chooses among several outputs "
            f"(`decode.method={decode.method}`, `decode.mbr={decode.mbr}`); these lines search.\n"
        )
    return text


def compared(trained: Trained, code: str, lines: Sequence[str]) -> dict[str, int]:
    """How many lines the lines of Python translate as `nmt-translate` does; texts are compared.

    `finished`: translations by nmt-translate that end within their limit.
    """
    names: dict[str, Any] = {}
    exec(code, names)  # ours; what comes from a model stands in it as a literal
    ours = best(trained, lines, trained.settings.decode.by_beam(), "as nmt-translate does")
    translated = map(names["translate"], lines)
    theirs = shown(translated, "by the lines of the card", [1] * len(lines))
    return {
        "compared": len(lines),
        "equal": sum(one.text == other for one, other in zip(ours, theirs, strict=True)),
        "finished": sum(each.finished for each in ours),
    }


def ctranslate2(trained: Trained, place: str, most: int | None) -> str:
    """The lines for a directory of CTranslate2, at `place`.

    `most`: pieces of the longest output that its tables are right for; None: any. The lines read
    certificate.json, whose `options` are those of translate_batch, and `files`.
    """
    decode = trained.settings.decode.by_beam()
    search = _Step(
        [
            'options = json.loads((place / "certificate.json").read_bytes())["options"]',
            "translator = ctranslate2.Translator(str(place))",
        ],
        [
            "if not pieces:",
            '    return ""',
            f'limit = {{"max_decoding_length": {_limit(decode, "len(pieces)", most)}}}',
            "(result,) = translator.translate_batch([pieces], **options | limit)",
            *_best(decode),
        ],
    )
    source, target = trained.source.segmenter, trained.target.segmenter
    steps = [_normalised(source), *_reading(source), search, *_writing(target)]
    return _program(f"Path({_literal(place)})", steps)


def transformers(trained: Trained, place: str, most: int) -> str:
    """The lines for a Marian directory, at `place`, of `most` positions but one."""
    limit = _limit(trained.settings.decode.by_beam(), "pieces", most)
    search = _Step(
        [
            "tokenizer = MarianTokenizer.from_pretrained(place)",
            "model = MarianMTModel.from_pretrained(place)",
        ],
        [
            "if not text:",
            '    return ""',
            'inputs = tokenizer([text], return_tensors="pt")',
            'pieces = inputs["input_ids"].shape[1] - 1  # but for the sign of the end',
            f"limit = {limit}",
            "(best,) = model.generate(**inputs, max_new_tokens=limit + 1)",
            "text = tokenizer.decode(best, skip_special_tokens=True)",
        ],
    )
    return _program(_literal(place), [_normalised(trained.source.segmenter), search])


def files(trained: Trained) -> dict[str, bytes]:
    """The files, by name, that the lines read beside those of CTranslate2; and target.spm."""
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


def _limit(decode: Decode, pieces: str, most: int | None) -> str:
    limit = f"int({decode.max_length_ratio!r} * {pieces}) + {decode.max_length_offset}"
    return limit if most is None else f"min({limit}, {most})"


def _best(decode: Decode) -> list[str]:
    if not is_ranked_anew(decode):
        return ["best = result.hypotheses[0]"]
    return [
        f"# CTranslate2 divides by length ** {decode.alpha!r}, and nmt by "
        f"((5 + length) / 6) ** {decode.alpha!r}",
        "lengths = [len(hypothesis) + 1 for hypothesis in result.hypotheses]",
        "scores = [",
        f"    score * (6 * length / (5 + length)) ** {decode.alpha!r}",
        "    for score, length in zip(result.scores, lengths)",
        "]",
        "best = result.hypotheses[scores.index(max(scores))]",
    ]


def _normalised(segmenter: Segmenter) -> _Step:
    """What nmt.data.normalise does, but for lone surrogates, which no file holds."""
    form = segmenter.tokenizer.normalize
    to_form = [] if form == "none" else [f'text = unicodedata.normalize("{form.upper()}", text)']
    return _Step(
        [f"invisible = {_literal(INVISIBLE.pattern)}"],
        [
            'text = re.sub(invisible, "", line)',
            *to_form,
            f'text = re.sub({_literal(CONTROL.pattern)}, " ", text).replace("\\u2581", "_")',
            'text = " ".join(text.split())',
        ],
    )


def _reading(segmenter: Segmenter) -> Iterator[_Step]:
    """From a normalised line to pieces."""
    if segmenter.tokenizer.kind == "moses":
        yield _Step(
            [f"tokenizer = MosesTokenizer({_literal(segmenter.tokenizer.language)})"],
            ['text = " ".join(tokenizer.tokenize(text, escape=False))'],
        )
    if isinstance(segmenter, Bpe):
        opened = '(place / "{}").open(encoding="utf-8")'
        options, vocabulary = "", []
        if segmenter.pieces:
            options = ", vocab=vocabulary"
            vocabulary = [f"vocabulary = apply_bpe.read_vocabulary({opened.format(PIECES)}, 1)"]
        yield _Step(
            [*vocabulary, f"bpe = apply_bpe.BPE({opened.format(CODES)}{options})"],
            ['pieces = bpe.segment_tokens(text.split(" "))'],
        )
        return
    encode = ["pieces = source.encode(text, out_type=str)"]
    if isinstance(segmenter, MarianSegmenter):
        encode = [
            f"code = re.match({_literal(CODE.pattern)}, text)  # of a language: one piece",
            "pieces = [code[0]] if code else []",
            "pieces += source.encode(text[len(code[0]) if code else 0 :], out_type=str)",
        ]
    yield _Step(['source = SentencePieceProcessor(model_file=str(place / "source.spm"))'], encode)


def _writing(segmenter: Segmenter) -> Iterator[_Step]:
    """From the best pieces to words or a line."""
    if isinstance(segmenter, Bpe):
        yield _Step(body=['text = (" ".join(best) + " ").replace("@@ ", "")'])
    elif isinstance(segmenter, MarianSegmenter):
        yield _Step(
            ['target = SentencePieceProcessor(model_file=str(place / "target.spm"))'],
            ["text = target.decode(best)"],
        )
    else:
        yield _Step(body=['text = "".join(best).replace("\\u2581", " ")'])
    if segmenter.tokenizer.kind == "moses":
        yield _Step(
            [f"detokenizer = MosesDetokenizer({_literal(segmenter.tokenizer.language)})"],
            ["text = detokenizer.detokenize(text.split(), unescape=False)"],
        )


def _program(place: str, steps: Sequence[_Step]) -> str:
    """The imports of all steps, what is made once, and the function."""
    setup = [line for step in steps for line in step.setup]
    body = [f"    {line}" for step in steps for line in step.body]
    body += ['    return " ".join(text.split())']
    own = "\n".join([*setup, *body, place.partition('"')[0]])  # the name of a place is no code
    imports = [line for word, line in IMPORTS.items() if word in own]
    setup = [f"place = {place}  # this directory", *setup]
    return "\n".join([*imports, "", *setup, "", "", "def translate(line):", *body])


def _literal(text: str) -> str:
    """A text as it stands in Python, in ASCII."""
    escaped = ascii(text)[1:-1].replace('"', '\\"')
    return f'"{escaped}"'


def _file(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
