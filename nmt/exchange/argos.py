"""Read and write packages of Argos Translate (.argosmodel), which LibreTranslate installs, too.

The client (argostranslate 1.11, tokenizer.py and translate.py) cuts lines and joins pieces by one
SentencePiece model, turns underscores of the output into spaces, and searches by CTranslate2 with a
beam of 4 and a length penalty of length^0.2. It does not exclude special pieces, so they get no
probability in the exported model.
"""

import io
import re
import shutil
import zipfile
from functools import partial
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nmt.decode.torch_engine import FORBIDDEN
from nmt.errors import UserError
from nmt.exchange import ctranslate2_write, model_card
from nmt.exchange.interface import CERTIFICATE, Export, invalid
from nmt.exchange.proof import bar_ids
from nmt.exchange.settings import UNNAMED, sentencepiece_of
from nmt.modeldir import Trained
from nmt.system import manifest
from nmt.text.unigram import SPACE, language_codes

METADATA, MODEL = "metadata.json", "sentencepiece.model"
MOST_UNPACKED = 20  # times the size of a package: weights can hardly be compressed
CODES = re.compile("[A-Za-z]{2,3}(-[A-Za-z0-9]+)*")  # of languages
IMPOSSIBLE = -1e4  # a logit whose probability is 0, and which float16 can hold
VERSION = "1.0"  # of a package
WRITTEN = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip: the same model gives the same bytes


def unpack(package: Path, directory: Path) -> None:
    """Unpack the model of a package, and its SentencePiece model for both sides."""
    directory.mkdir()
    with zipfile.ZipFile(package) as archive:
        if sum(m.file_size for m in archive.infolist()) > MOST_UNPACKED * package.stat().st_size:
            raise invalid(package, "unpacks to more than a model")
        for name in archive.namelist():
            _, _, inside = name.partition("/")
            if (file := inside.removeprefix("model/")) and "/" not in file:
                (directory / file).write_bytes(archive.read(name))
    if not (model := directory / MODEL).exists():
        raise invalid(package, f"holds no {MODEL}, as all do here")
    for side in ("source", "target"):
        shutil.copy(model, directory / f"{side}.spm")


def prepare(trained: Trained) -> Export:
    """Prepare the export of a model; UserError if the client would treat its text differently."""
    never = FORBIDDEN[trained.settings.decode.unknown]
    written = bar_ids(trained, never, IMPOSSIBLE)
    naming, sites = ctranslate2_write.fit(written)
    _check_text(trained)
    data = trained.settings.data
    codes = data.source_language, data.target_language
    return Export(
        written,
        partial(ctranslate2_write.write_weights, written, naming, sites),
        usage=lambda file: model_card.render("argos_card.jinja", file=file, codes=codes).strip(),
        pack=partial(_pack, sentencepiece_of(trained.source), codes),
    )


def _pack(
    segmenter: bytes, codes: tuple[str, str], directory: Path, names: tuple[str, str] | None
) -> bytes:
    """The archive, in one directory as the client expects."""
    (source, target), (source_name, target_name) = codes, names or codes
    metadata = {
        "package_version": VERSION,
        "argos_version": "1.0",  # as in its own example; the client does not ask
        "from_code": source,
        "from_name": source_name,
        "to_code": target,
        "to_name": target_name,
    }
    files = {METADATA: manifest.dump(metadata), MODEL: segmenter}
    for file in sorted(directory.iterdir()):
        folder = "" if file.name in (CERTIFICATE, manifest.README) else "model/"
        files[f"{folder}{file.name}"] = file.read_bytes()
    folder = f"translate-{source}_{target}-{VERSION.replace('.', '_')}"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(f"{folder}/{name}", WRITTEN)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _check_text(trained: Trained) -> None:
    """Raise UserError if the client would segment text or join pieces differently.

    White space and underscores may differ.
    """
    data = trained.settings.data
    for key in ("source_language", "target_language"):
        code = getattr(data, key)
        if code == UNNAMED or not CODES.fullmatch(code):
            raise UserError(
                f"data.{key}={code}: Argos Translate finds packages by codes such as de and en; "
                "train with one"
            )
    if prefix := next(iter(language_codes(trained.source.vocabulary)), None):
        raise UserError(
            f"{prefix} in a line: cannot be exported to Argos Translate, which would cut it into "
            "pieces; a package has one target language"
        )
    processor = SentencePieceProcessor(model_proto=sentencepiece_of(trained.source))
    for piece in trained.target.vocabulary.to_json():
        pieces = [f"{SPACE}a", piece, f"{SPACE}a"]
        words = processor.decode_pieces(pieces).replace(SPACE, " ").split()
        if " ".join(words) != trained.target.segmenter.decode(pieces):
            raise UserError(
                f"the piece {piece!r} of the target: cannot be exported to Argos Translate, which "
                "joins pieces by the SentencePiece model of the source; train with "
                "segmenter.shared_vocabulary=true"
            )
