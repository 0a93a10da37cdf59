"""A model as a package of Argos Translate, which LibreTranslate installs too: .argosmodel.

What its client does with a line stands in argostranslate 1.11, tokenizer.py and translate.py: one
SentencePiece model cuts lines and joins pieces, underscores of the output become spaces, and
CTranslate2 searches with a beam of 4 and a length penalty of length^0.2; nothing tells it to leave
out special pieces. So here these have no probability in the model itself.
"""

import io
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nmt.decode.torch_engine import FORBIDDEN
from nmt.errors import UserError
from nmt.exchange import unshared
from nmt.exchange.adapter import CERTIFICATE
from nmt.exchange.ctranslate2_adapter import WeightsAdapter
from nmt.exchange.proof import without_ids
from nmt.exchange.settings import UNNAMED
from nmt.modeldir import Trained
from nmt.system import atomic, manifest
from nmt.text.side import Side
from nmt.text.unigram import SPACE, Unigram, language_codes

CODES = re.compile("[A-Za-z]{2,3}(-[A-Za-z0-9]+)*")  # of languages
IMPOSSIBLE = -1e4  # a logit whose probability is 0, and which float16 can hold
VERSION = "1.0"  # of a package
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


class ArgosAdapter(WeightsAdapter):
    """Models whose lines the client cuts, and whose pieces it joins, as they do themselves."""

    title = "Argos Translate and LibreTranslate"
    suffix = ".argosmodel"

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for models whose text the client would treat otherwise."""
        never = FORBIDDEN[trained.settings.decode.unknown]
        super().__init__(without_ids(trained, never, IMPOSSIBLE))
        _refuse(trained)

    def usage(self, name: str) -> str:
        """Lines for the client."""
        data = self.trained.settings.data
        languages = {"source": data.source_language, "target": data.target_language}
        return USAGE.format(file=name, **languages).strip()

    def save(self, path: Path, directory: Path) -> None:
        """Write the archive, all in one directory as the client expects."""
        data, segmenter = self.trained.settings.data, self.trained.source.segmenter
        assert isinstance(segmenter, Unigram)  # anything else was refused
        source, target = data.source_language, data.target_language
        names = self.names or (source, target)
        metadata = {
            "package_version": VERSION,
            "argos_version": "1.0",  # as in its own example; the client does not ask
            "from_code": source,
            "from_name": names[0],
            "to_code": target,
            "to_name": names[1],
        }
        files = {
            "metadata.json": manifest.dump(metadata),
            "sentencepiece.model": segmenter.model,
        }
        for file in sorted(directory.iterdir()):
            folder = "" if file.name in (CERTIFICATE, manifest.README) else "model/"
            files[f"{folder}{file.name}"] = file.read_bytes()
        place = f"translate-{source}_{target}-{VERSION.replace('.', '_')}"
        atomic.replace(path, zipped((f"{place}/{name}", data) for name, data in files.items()))


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
    why = (
        "normalises punctuation and writes & and quotes as XML entities before it applies merges; "
        "train with segmenter=unigram segmenter.shared_vocabulary=true"
    )
    source, _ = (
        unshared.plain_sentencepiece(side.segmenter, "Argos Translate", why)
        for side in (trained.source, trained.target)
    )
    if prefix := next(iter(language_codes(trained.source.vocabulary)), None):
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
