"""A model as a package of Argos Translate, which LibreTranslate installs too: .argosmodel.

What its client does with a line stands in argostranslate 1.11, tokenizer.py and translate.py: one
SentencePiece model cuts lines and joins pieces, underscores of the output become spaces, and
CTranslate2 searches with a beam of 4 and a length penalty of length^0.2; nothing tells it to leave
out special pieces. So here these have no probability in the model itself.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from sentencepiece import SentencePieceProcessor

from nmt import atomic, manifest
from nmt.data.marian import CODE
from nmt.data.side import Side
from nmt.data.unigram import SPACE, Unigram
from nmt.decode.torch_engine import FORBIDDEN
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange import (
    certificate,
    ctranslate2_export,
    ctranslate2_proof,
    ctranslate2_spec,
    samples,
)
from nmt.exchange.certificate import NAME, RATIO, ROOM, quiet, without
from nmt.exchange.marian import UNNAMED
from nmt.exchange.model_card import CardOptions, card
from nmt.exchange.samples import SampleLine
from nmt.modeldir import Trained

SUFFIX = ".argosmodel"
CODES = re.compile("[A-Za-z]{2,3}(-[A-Za-z0-9]+)*")  # of languages
IMPOSSIBLE = -1e4  # a logit whose probability is 0, and which float16 can hold
SEARCH: dict[str, Any] = {"beam_size": 4, "length_penalty": 0.2, "replace_unknowns": True}
OUTPUT = 256  # pieces that CTranslate2 stops after where nobody says otherwise, as here
INPUT = 1024  # and of a source those that it reads
WRITTEN = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip: the same model gives the same bytes
USAGE = """
```python
import argostranslate.package
import argostranslate.translate

argostranslate.package.install_from_path("{file}")
print(argostranslate.translate.translate("a line", "{source}", "{target}"))
```

Argos Translate divides text into sentences before it is translated. Of a sentence it reads the
first 1,024 pieces, and its translation has at most 256; an underscore in the output becomes a
space.
"""


class PackageOptions(NamedTuple):
    """What a package says that no file of the model does."""

    names: tuple[str, str] | None = None  # of the languages, for people; None: their codes
    version: str = "1.0"


def export(
    trained: Trained,
    path: Path,
    lines: Sequence[str] | None = None,
    precision: str = "float32",
    card_options: CardOptions | None = None,
    package: PackageOptions | None = None,
) -> dict[str, Any]:
    """Write a package; returns its certificate, which lies in it.

    What is compared, and raised, is as in `ctranslate2_export.export`; besides, how many outputs
    are those of `nmt-translate` when CTranslate2 searches as Argos Translate tells it to. The path
    must not exist.
    """
    if find_spec("ctranslate2") is None:
        raise UserError(
            "--to argos: ctranslate2 is not installed; pip install 'nmt[ct2]'", Exit.UNAVAILABLE
        )
    _refuse(trained)
    firm = _without_special(trained)
    exported = ctranslate2_spec.specification(firm, ctranslate2_export.LONGEST)
    chosen = samples.samples(trained, exported.longest_source, lines)
    ours = ctranslate2_proof.outputs(firm, chosen)
    with TemporaryDirectory() as place:
        kept = ctranslate2_export.saved(exported, "float32", Path(place) / "float32")
        found = ctranslate2_proof.certify(firm, ours, exported, kept)
        found["as_argos_asks"] = _as_argos_asks(trained, chosen, kept)
        if precision != "float32":
            exported = ctranslate2_spec.specification(firm, ctranslate2_export.LONGEST)
            kept = ctranslate2_export.saved(exported, precision, Path(place) / precision)
            found[precision] = ctranslate2_proof.measure(firm, ours, exported, kept)
        words = trained.source.segmenter.tokenizer.words
        found["lines_normalised"] = sum(words(each.line) != each.line for each in chosen)
        path.parent.mkdir(parents=True, exist_ok=True)
        files = _files(trained, kept, found, path, card_options, package or PackageOptions())
        atomic.replace(path, zipped(files))
    certificate.report(found)
    return found


def zipped(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip archive of files (name, bytes), always of the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files:
            info = zipfile.ZipInfo(name, WRITTEN)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _refuse(trained: Trained) -> None:
    """Raise UserError where the client would cut a normalised line or join pieces otherwise."""
    data = trained.settings.data
    for key in ("source_language", "target_language"):
        code = getattr(data, key)
        if code == UNNAMED or not CODES.fullmatch(code):
            raise UserError(
                f"data.{key}={code}: Argos Translate finds packages by codes such as de and en; "
                "train with such a one"
            )
    source, target = trained.source.segmenter, trained.target.segmenter
    if not isinstance(source, Unigram) or not isinstance(target, Unigram):
        raise UserError(
            "segmenter.kind=bpe: cannot be exported to Argos Translate, which normalises "
            "punctuation and writes & and quotes as XML entities before it applies merges; train "
            "with segmenter=unigram segmenter.shared_vocabulary=true"
        )
    for segmenter in (source, target):
        if segmenter.tokenizer.kind != "none":
            raise UserError(
                f"segmenter.tokenizer={segmenter.tokenizer.kind}: cannot be exported to Argos "
                "Translate, which runs SentencePiece on plain text; train with "
                "segmenter.tokenizer=none"
            )
    if source.tokenizer.normalize == "nfkc":
        raise UserError(
            "data.normalize=nfkc: cannot be exported to Argos Translate, which would read much "
            "text otherwise; train with data.normalize=nfc or none"
        )
    if prefix := next(filter(CODE.fullmatch, trained.source.vocabulary.to_json()), None):
        raise UserError(
            f"{prefix} in a line: cannot be exported to Argos Translate, which would cut it into "
            "pieces; a package has one target language"
        )
    _refuse_joining(source, trained.target)


def _refuse_joining(source: Unigram, target: Side) -> None:
    """Raise UserError for a piece of the target that the model of the source joins otherwise.

    Apart from white space, of which nmt leaves single spaces, and from underscores.
    """
    processor = SentencePieceProcessor(model_proto=source.model)
    for piece in target.vocabulary.to_json():
        pieces = [f"{SPACE}a", piece, f"{SPACE}a"]
        theirs = processor.decode_pieces(pieces).replace(SPACE, " ").split()
        if " ".join(theirs) != target.segmenter.decode(pieces):
            raise UserError(
                f"the piece {piece!r} of the target: cannot be exported to Argos Translate, which "
                "joins pieces by the SentencePiece model of the source; train with "
                "segmenter.shared_vocabulary=true"
            )


def _without_special(trained: Trained) -> Trained:
    """A copy in which what nmt never chooses has no probability."""
    firm = without(trained, [])
    with torch.no_grad():
        forbidden = list(FORBIDDEN[trained.settings.decode.unknown])
        firm.model.output.bias[forbidden] = IMPOSSIBLE
    return firm


def _as_argos_asks(trained: Trained, chosen: Sequence[SampleLine], directory: Path) -> Any:
    """How many outputs that end in time are those of nmt-translate with the same penalty."""
    from ctranslate2 import Translator as Reader

    reader = Reader(str(directory), compute_type="float32", inter_threads=1, intra_threads=1)
    decode = replace(
        trained.settings.decode,
        beam_size=SEARCH["beam_size"],
        alpha=SEARCH["length_penalty"],
        length_penalty="power",
        max_length_ratio=RATIO,
        max_length_offset=ROOM,
        precision="float32",
    )
    with quiet():
        ours = list(Translator.of(trained, decode).translate([each.line for each in chosen]))
    counts = {"compared": 0, "equal": 0}
    for sample, (best, *_) in zip(chosen, ours, strict=True):
        if best.finished and len(best.ids) < OUTPUT and len(sample.ids) <= INPUT:
            pieces = trained.source.segmenter.encode(sample.line)
            (result,) = reader.translate_batch([pieces], **SEARCH)
            counts["compared"] += 1
            names = trained.target.vocabulary.pieces(best.ids)
            counts["equal"] += result.hypotheses[0] == names
    return counts


def _files(
    trained: Trained,
    model: Path,
    found: dict[str, Any],
    path: Path,
    card_options: CardOptions | None,
    package: PackageOptions,
) -> Iterable[tuple[str, bytes]]:
    """The files of the archive, all in one directory as the client expects."""
    data, segmenter = trained.settings.data, trained.source.segmenter
    assert isinstance(segmenter, Unigram)  # anything else was refused
    source, target = data.source_language, data.target_language
    place = f"translate-{source}_{target}-{package.version.replace('.', '_')}"
    names = package.names or (source, target)
    metadata = {
        "package_version": package.version,
        "argos_version": "1.0",  # as in its own example; the client does not ask
        "from_code": source,
        "from_name": names[0],
        "to_code": target,
        "to_name": names[1],
    }
    yield f"{place}/metadata.json", manifest.dump(metadata)
    yield f"{place}/sentencepiece.model", segmenter.model
    for file in sorted(model.iterdir()):
        yield f"{place}/model/{file.name}", file.read_bytes()
    usage = USAGE.format(file=path.name, source=source, target=target).strip()
    options = card_options or CardOptions(path.name.removesuffix(SUFFIX))
    yield f"{place}/README.md", card(trained, "argos", found, options, usage)
    yield f"{place}/{NAME}", json.dumps(found, indent=1).encode()
