"""Read and write directories of Marian (OPUS-MT's releases, Firefox's teachers).

Such a directory has an npz and its vocabulary: a list of pieces with source.spm and target.spm, or
an .spm, whose ids then count. decoder.yml, if there, names the files and the search settings.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nmt.config.settings import Decode
from nmt.errors import UserError
from nmt.exchange import marian_ids, marian_npz, marian_weights, model_card
from nmt.exchange.ctranslate2_names import Naming, SideNames
from nmt.exchange.ctranslate2_scorer import CTranslate2Scorer
from nmt.exchange.export_engines import MARIAN_NPZ
from nmt.exchange.interface import CTRANSLATE2, EngineScorer, Export, Imported, invalid
from nmt.exchange.marian_ids import EOS_PIECE, UNK_PIECE, MarianIds
from nmt.exchange.marian_weights import MARIAN
from nmt.exchange.requirements import component_order, sentencepiece_of
from nmt.exchange.settings import UNNAMED, make_trained, sentencepiece, settings_of
from nmt.modeldir import Trained
from nmt.system import manifest
from nmt.text.side import Side
from nmt.text.unigram import MarianSegmenter, Unigram, language_codes
from nmt.text.vocab import EOS

NAME, DECODER = "model.npz", "decoder.yml"
SIDES = {"source": ("source", "src"), "target": ("target", "trg", "tgt")}  # words in file names
VOCABULARIES = [f"*vocab*.{kind}" for kind in ("yml", "spm", "json", "txt")]
UNREAD = (".fsv", ".bin")  # factors, and weights packed for one processor
POSITIONS = 2048  # as many as CTranslate2's converter writes


def read(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a model with its segmenters."""
    decoder, values = _read_decoder(directory)
    (npz,) = _find_files(directory, values.get("models"), 1, "*.npz")
    tensors, options = marian_npz.read(npz)
    shape = marian_npz.shape_of(npz, options)
    files = _find_files(directory, values.get("vocabs"), 2, *VOCABULARIES)
    vocabularies = [files[0], files[-1]]
    segmenters = [
        sentencepiece(Unigram, v, UNNAMED)  # cuts whole lines, the code of a language included
        if v.suffix == ".spm"
        else sentencepiece(MarianSegmenter, directory / f"{side}.spm", UNNAMED)
        for side, v in zip(SIDES, vocabularies, strict=True)
    ]
    source, target = ids = [marian_ids.read(v) for v in vocabularies]
    shared = source.to_json() == target.to_json()
    if shape["tie"] == "all" and not shared:
        names = f"{files[0].name} and {files[-1].name} number pieces otherwise"
        advice = "name the vocabulary of both sides in decoder.yml under vocabs"
        raise invalid(npz, f"one embedding, but {names}; {advice}")
    encoding, search = MARIAN_NPZ.sinusoids.overrides(), marian_npz.search_of(decoder, values)
    settings = settings_of(encoding, search, shape, trained_length, shared)
    ours = marian_weights.to_ours(npz, tensors, settings.model, ids, MARIAN)
    sides = [Side(cut, side.vocabulary) for cut, side in zip(segmenters, ids, strict=True)]
    trained = make_trained(npz, settings, ours, sides, trained_length)
    return Imported(trained, CTRANSLATE2, partial(open_scorer, npz, settings.decode, *ids))


def _read_decoder(directory: Path) -> tuple[Path, dict[str, Any]]:
    """decoder.yml, or NAME.decoder.yml, and its values; none: the defaults of Marian count."""
    path = directory / DECODER
    found = [path] if path.exists() else sorted(directory.glob("*.decoder.yml"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise invalid(directory, f"{names}; rename one to {DECODER}")
    if not found:
        return path, {}
    return found[0], marian_npz.parse(manifest.read_bytes(found[0]), str(found[0]))


def _find_files(directory: Path, named: Any, most: int, *patterns: str) -> list[Path]:
    """The files that decoder.yml names, whatever their folder, or those of the first pattern."""
    names = named if isinstance(named, list) else [named] if named else []
    found = [directory / name for name in dict.fromkeys(Path(str(name)).name for name in names)]
    found = found or next(filter(None, (sorted(directory.glob(p)) for p in patterns)), [])
    if not 0 < len(found) <= most or any(path.suffix in UNREAD for path in found):
        given = ", ".join(path.name for path in found) or f"no {patterns[0]}"
        expected = "one file" if most == 1 else "one or two files"
        what = f"expected {expected}, neither factored (.fsv) nor packed (.bin)"
        raise invalid(directory, f"{given}: {what}, under models and vocabs of decoder.yml")
    says_side = [
        any(word in path.name.lower() for word in words)
        for words, path in zip(SIDES.values(), found, strict=False)
    ]
    if not names and len(found) == 2 and not all(says_side):
        what = f"{found[0].name}, {found[1].name}: the names do not say which is of the source"
        raise invalid(directory, f"{what}; name both in decoder.yml under vocabs, the source first")
    return found


def prepare(trained: Trained) -> Export:
    """Prepare the export of a model; UserError for one that Marian does not support."""
    if trained.settings.model.activation == "gelu":
        raise UserError(f"model.activation=gelu: {marian_npz.GELU}; train with relu or swish")
    ids = [marian_ids.without_padding(s.vocabulary) for s in (trained.source, trained.target)]
    vocabularies = _vocabulary_files(trained, ids)

    def write(directory: Path, precision: str) -> EngineScorer:
        directory.mkdir()
        names = [name for name in vocabularies if name.startswith("vocab.")]
        decoder = {"models": [NAME], "vocabs": [names[0], names[-1]], "relative-paths": True}
        decoder |= marian_npz.to_search(trained.settings.decode)
        options = marian_npz.to_options(trained.settings.model, [side.size for side in ids])
        order = component_order(trained.model)
        tensors = marian_weights.to_theirs(trained, order, ids, MARIAN)
        files = {DECODER: marian_npz.dump(decoder), NAME: marian_npz.write(tensors, options)}
        for name, data in {**vocabularies, **files}.items():
            (directory / name).write_bytes(data)
        return open_scorer(directory / NAME, trained.settings.decode, *ids)

    def usage(name: str) -> str:
        """Python for pymarian; it runs SentencePiece unless Marian does."""
        codes = [*language_codes(trained.source.vocabulary)]
        spm = "source.spm" not in vocabularies
        return model_card.render("marian_npz_card.jinja", name=name, codes=codes, spm=spm).strip()

    return Export(trained, write, usage=usage)


def _vocabulary_files(trained: Trained, ids: Sequence[MarianIds]) -> dict[str, bytes]:
    """SentencePiece models if their ids are those of the model, otherwise lists of pieces."""
    contents = models = [sentencepiece_of(side) for side in (trained.source, trained.target)]
    files, kind = dict[str, bytes](), "spm"
    if [marian_ids.of_sentencepiece(model) for model in models] != [s.to_json() for s in ids]:
        contents, kind = [marian_ids.dump_lines(side.to_json()) for side in ids], "yml"
        files = {"source.spm": models[0], "target.spm": models[1]}
    sides = ("",) if contents[0] == contents[1] else ("src.", "trg.")
    names = [f"vocab.{side}{kind}" for side in sides]
    return files | dict(zip(names, contents, strict=False))


def open_scorer(
    npz: Path, decode: Decode, source: MarianIds, target: MarianIds
) -> CTranslate2Scorer:
    """Let CTranslate2 convert a model.npz, and open the result.

    Its converter gets the tensors and options of the file, with three changes: Marian's sinusoids,
    since it computes others; options that the file leaves out, or in their usual form; and names
    for the pieces, since it does not read every vocabulary.
    """
    from ctranslate2.converters import MarianConverter

    orders = [side.numbers[EOS:] for side in (source, target)]
    names = [["", "", EOS_PIECE, UNK_PIECE, *map("p{}".format, order[2:])] for order in orders]
    with TemporaryDirectory() as work, np.load(npz, allow_pickle=False) as file:
        tensors = dict(file)
        options = marian_npz.parse(tensors[marian_npz.CONFIG].tobytes().rstrip(b"\0"), str(npz))
        text = marian_npz.dump(marian_npz.complete(options))
        tensors["Wpos"] = _sinusoids(tensors["encoder_l1_self_Wq"].shape[0])
        tensors[marian_npz.CONFIG] = np.frombuffer(text + b"\0", np.int8)
        np.savez(f"{work}/model.npz", **tensors)
        files = [f"{work}/source.yml", f"{work}/target.yml"]
        for path, named, order in zip(files, names, orders, strict=True):
            lines = (f"{name}: {i}\n" for name, i in zip(named[2:], order, strict=True))
            Path(path).write_text("".join(lines), encoding="utf-8")
        MarianConverter(f"{work}/model.npz", files).convert(f"{work}/converted")
        naming = Naming(*map(SideNames, names))
        scorer = CTranslate2Scorer(Path(work) / "converted", naming, decode)
    scorer.absent = target.absent
    scorer.options = {}  # Marian translates with the directory, not CTranslate2
    return scorer


def _sinusoids(dim: int) -> np.ndarray:
    """The sinusoids of addPositionalEmbeddings in Marian's transformer.h."""
    frequencies = 10000.0 ** -(np.arange(dim // 2) / (dim / 2 - 1))
    angles = np.arange(POSITIONS)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
