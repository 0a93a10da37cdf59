"""A model as a directory of Marian itself: the way back of `marian_npz_read.read`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jinja2 import Template

from nmt.config.settings import Decode
from nmt.errors import UserError
from nmt.exchange import marian_ids, marian_npz, marian_weights
from nmt.exchange.adapter import CTRANSLATE2, EngineScorer
from nmt.exchange.ctranslate2_names import Naming
from nmt.exchange.ctranslate2_scorer import CTranslate2Scorer
from nmt.exchange.marian_adapter import MarianAdapter
from nmt.exchange.marian_ids import EOS_PIECE, UNK_PIECE, MarianIds
from nmt.exchange.marian_weights import MARIAN
from nmt.modeldir import Trained
from nmt.text.unigram import language_codes

NAME = "model.npz"  # of the file
POSITIONS = 2048  # as many as that converter writes


class MarianNpzAdapter(MarianAdapter):
    """Models with Marian's own sinusoids, whose decoder starts from a zero vector."""

    library, title, on_hub = CTRANSLATE2, "Marian", None
    required: Mapping[str, object] = {**MarianAdapter.required, "target_bos": False}
    SINUSOIDS = marian_npz.SINUSOIDS
    numberings = staticmethod(marian_ids.without_padding)

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained)
        if trained.settings.model.activation == "gelu":
            raise UserError(f"model.activation=gelu: {marian_npz.GELU}; train with relu or swish")
        models = [marian_ids.of_sentencepiece(segmenter.model) for segmenter in self.segmenters]
        self.kind = "spm" if models == [side.to_json() for side in self.ids] else "yml"

    def scorer(self, directory: Path) -> EngineScorer:
        """Open the directory."""
        return MarianNpzScorer(directory / NAME, self.trained.settings.decode, *self.ids)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The files (name, bytes) of the directory, but for the weights."""
        vocabularies = models = [segmenter.model for segmenter in self.segmenters]
        if self.kind == "yml":
            vocabularies = [marian_ids.dump_lines(side.to_json()) for side in self.ids]
            yield from (("source.spm", models[0]), ("target.spm", models[1]))
        one = vocabularies[0] == vocabularies[1]
        names = [f"vocab.{s}{self.kind}" for s in (("", "") if one else ("src.", "trg."))]
        yield from dict(zip(names, vocabularies, strict=True)).items()
        search = marian_npz.to_search(self.trained.settings.decode)
        files = {"models": [NAME], "vocabs": names, "relative-paths": True}
        yield "decoder.yml", marian_npz.dump({**files, **search})

    def write_weights(self, directory: Path) -> None:
        """Make their file."""
        sizes = [side.size for side in self.ids]
        options = marian_npz.to_options(self.trained.settings.model, sizes)
        tensors = marian_weights.to_theirs(self.trained, self.order, self.ids, MARIAN)
        (directory / NAME).write_bytes(marian_npz.write(tensors, options))

    def code(self, place: str) -> None:
        """None: Marian is a program."""

    def usage(self, name: str) -> str:
        """Python for pymarian; SentencePiece cuts lines where the vocabulary does not."""
        template = Path(__file__).with_name("marian_npz_card.jinja").read_text(encoding="utf-8")
        codes = [*language_codes(self.trained.source.vocabulary)]
        spm = self.kind == "spm"
        return Template(template, trim_blocks=True).render(name=name, codes=codes, spm=spm).strip()


class MarianNpzScorer(CTranslate2Scorer):
    """A model.npz that CTranslate2 reads; an EngineScorer.

    Its converter gets tensors and options as the file has them, and three things besides: Marian's
    sinusoids, computed here, since its own are others; an option that the file leaves out, or in
    its usual form; names for the pieces, since it does not read every vocabulary.
    """

    def __init__(self, npz: Path, decode: Decode, source: MarianIds, target: MarianIds) -> None:
        from ctranslate2.converters import MarianConverter

        both, files = (source, target), list[str]()
        naming = [["", "", EOS_PIECE, UNK_PIECE, *map("p{}".format, side.order[2:])]
                  for side in both]  # fmt: skip
        with TemporaryDirectory() as work, np.load(npz, allow_pickle=False) as file:
            tensors = dict(file)
            dim = tensors["encoder_l1_self_Wq"].shape[0]
            options = marian_npz.parse(tensors[marian_npz.CONFIG].tobytes().rstrip(b"\0"), str(npz))
            options = marian_npz.complete(options)
            for names, side in zip(naming, both, strict=True):
                files.append(f"{work}/{len(files)}.yml")
                lines = (f"{n}: {i}\n" for n, i in zip(names[2:], side.order, strict=True))
                Path(files[-1]).write_text("".join(lines), encoding="utf-8")
            text = np.frombuffer(marian_npz.dump(options) + b"\0", np.int8)
            tensors |= {"Wpos": _positions(dim), marian_npz.CONFIG: text}
            np.savez(f"{work}/model.npz", **tensors)
            MarianConverter(f"{work}/model.npz", files).convert(f"{work}/converted")
            # Marian's positions have no end
            super().__init__(
                Path(work) / "converted", Naming(naming[0], naming[1], None, None), decode
            )
        self.absent = target.absent
        self.options = {}  # Marian translates with the directory, not CTranslate2


def _positions(dim: int) -> np.ndarray:
    """Sinusoids as addPositionalEmbeddings of Marian's transformer.h computes them."""
    frequencies = 10000.0 ** -(np.arange(dim // 2) / (dim / 2 - 1))
    angles = np.arange(POSITIONS)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
