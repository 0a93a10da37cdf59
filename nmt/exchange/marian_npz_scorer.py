"""A model.npz as the proof asks it: what CTranslate2's own converter of Marian makes of it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nmt.config.settings import Decode
from nmt.exchange import marian_ids, marian_npz
from nmt.exchange.ctranslate2_names import Naming
from nmt.exchange.ctranslate2_scorer import CTranslate2Scorer
from nmt.exchange.marian_ids import EOS_PIECE, UNK_PIECE, MarianIds
from nmt.text.vocab import BOS

POSITIONS = 2048  # as many as that converter writes


class MarianNpzScorer(CTranslate2Scorer):
    """A model.npz that CTranslate2 reads; an EngineScorer.

    The converter is given the sinusoids that Marian computes, since its own are others, and names
    for the pieces, since it does not read every YAML.
    """

    def __init__(self, npz: Path, decode: Decode, source: MarianIds, target: MarianIds) -> None:
        from ctranslate2.converters import MarianConverter

        with TemporaryDirectory() as work, np.load(npz, allow_pickle=False) as file:
            tensors = {name: file[name] for name in file.files}
            dim = tensors["encoder_l1_self_Wq"].shape[0]
            text = tensors[marian_npz.CONFIG].tobytes().rstrip(b"\0") + b"\0"  # padded by Marian
            tensors[marian_npz.CONFIG] = np.frombuffer(text, np.int8)
            tensors["Wpos"] = marian_npz.positions(POSITIONS, dim).numpy()
            np.savez(f"{work}/model.npz", **tensors)
            naming = [_names(side) for side in (source, target)]
            for number, (names, side) in enumerate(zip(naming, (source, target), strict=True)):
                ids = dict(zip(names[BOS + 1 :], side.order, strict=True))
                Path(f"{work}/{number}.yml").write_bytes(marian_ids.dump_lines(ids))
            converter = MarianConverter(f"{work}/model.npz", [f"{work}/{n}.yml" for n in (0, 1)])
            converter.convert(f"{work}/converted")
            both = Naming(naming[0], naming[1], None, None)  # Marian's positions have no end
            super().__init__(Path(work) / "converted", both, decode)
        self.absent = target.absent
        self.options = {}  # Marian translates with the directory, not CTranslate2


def _names(side: MarianIds) -> list[str]:
    """A name for each of our ids; it has neither PAD nor BOS."""
    return ["", "", EOS_PIECE, UNK_PIECE, *(f"p{i}" for i in range(len(side.order) - 2))]
