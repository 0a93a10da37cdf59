"""A model as a directory of CTranslate2, with the files by which nmt and others read it."""

from pathlib import Path

from nmt.exchange import card_code, ctranslate2_engine, ctranslate2_spec
from nmt.exchange.adapter import CTRANSLATE2, Adapter
from nmt.exchange.ctranslate2_names import LONGEST, Naming, names, prefixes
from nmt.exchange.ctranslate2_scorer import CTranslate2Scorer
from nmt.modeldir import SETTINGS_BESIDE, Trained
from nmt.system import manifest


class WeightsAdapter(Adapter):
    """Models with positions that CTranslate2 has: its own files alone."""

    library = CTRANSLATE2

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that CTranslate2 cannot express."""
        super().__init__(trained)
        self._sites = ctranslate2_spec.positions(trained.settings, trained.model, LONGEST)
        vocabularies = trained.source.vocabulary, trained.target.vocabulary
        tables = self._sites["encoder"].limit, self._sites["decoder"].limit
        languages = prefixes(trained.settings.decode, *vocabularies)
        self.naming = Naming(*names(*vocabularies), *tables, *languages)

    def written(self, directory: Path, precision: str) -> CTranslate2Scorer:
        """Make a directory of CTranslate2's own files, and open it."""
        spec = ctranslate2_spec.specification(self.trained, self._sites, self.naming)
        spec.optimize(quantization=precision)
        directory.mkdir()
        spec.save(str(directory))
        computed_in = "float32" if precision == "float32" else "default"
        decode = self.trained.settings.decode
        return CTranslate2Scorer(directory, self.naming, decode, computed_in)


class CTranslate2Adapter(WeightsAdapter):
    """The same with what nmt and the code of the card read besides."""

    title = "CTranslate2"
    has_languages = True
    on_hub = "ctranslate2"

    def written(self, directory: Path, precision: str) -> CTranslate2Scorer:
        """Make a directory with the segmenters, settings and facts that belong to it."""
        scorer = super().written(directory, precision)
        trained = self.trained
        files = card_code.files(trained) | {
            "source.json": manifest.dump(trained.source.to_json()),
            "target.json": manifest.dump(trained.target.to_json()),
            "facts.json": manifest.dump(trained.facts),
            SETTINGS_BESIDE: ctranslate2_engine.settings_file(trained.settings, precision),
        }
        for name, content in files.items():
            (directory / name).write_bytes(content)
        return scorer

    def code(self, place: str) -> str | None:
        """Lines that read certificate.json there, for its options."""
        most = self.naming.longest_target and self.naming.longest_target - 1
        return card_code.program(self.trained, place, most)
