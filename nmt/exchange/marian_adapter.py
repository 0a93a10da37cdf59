"""A model as a Marian directory of Hugging Face."""

from pathlib import Path

from nmt.exchange import card_code, marian_files
from nmt.exchange.adapter import TRANSFORMERS, Adapter, PackageOptions
from nmt.exchange.marian_scorer import MarianScorer
from nmt.modeldir import Trained


class MarianAdapter(Adapter):
    """Models with norms after the sublayers, sinusoids and SentencePiece."""

    library = TRANSFORMERS
    title = "Hugging Face transformers (Marian)"
    on_hub = "transformers"

    def __init__(self, trained: Trained, package: PackageOptions) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained, package)
        self._files = marian_files.specification(trained)

    def written(self, directory: Path, precision: str) -> MarianScorer:
        """Make the directory; the precision is float32."""
        directory.mkdir()
        for name, data in marian_files.files(self._files):
            (directory / name).write_bytes(data)
        decode = self.trained.settings.decode
        return MarianScorer(directory, decode, self._files.source, self._files.target)

    def code(self, place: str) -> str:
        """Lines for MarianTokenizer and MarianMTModel."""
        return card_code.transformers(self.trained, place, self._files.positions - 2)

    def usage(self, name: str) -> str:
        """The lines themselves."""
        return card_code.markdown(self.code(name), self.trained)
