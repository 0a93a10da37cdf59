"""A model.npz as the proof asks it: what CTranslate2's own converter of Marian makes of it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nmt.config.settings import Decode
from nmt.exchange import marian_npz
from nmt.exchange.ctranslate2_names import Naming
from nmt.exchange.ctranslate2_scorer import CTranslate2Scorer
from nmt.exchange.marian_ids import EOS_PIECE, UNK_PIECE, MarianIds

POSITIONS = 2048  # as many as that converter writes


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
            options = marian_npz.usual(options)
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
