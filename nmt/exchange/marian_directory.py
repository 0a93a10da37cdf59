"""Read and write directories of Marian (OPUS-MT's releases, Firefox's teachers).

Such a directory has an npz and its vocabulary: a list of pieces with source.spm and target.spm, or
an .spm, whose ids then count. decoder.yml, if there, names the files and the search settings.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from sentencepiece import SentencePieceProcessor

from nmt.config.settings import Decode
from nmt.errors import UserError
from nmt.exchange import marian_npz, marian_weights, model_card
from nmt.exchange.ctranslate2_names import Naming, SideNames
from nmt.exchange.ctranslate2_write import CTranslate2Scorer
from nmt.exchange.interface import CTRANSLATE2, MARIAN_NPZ, EngineScorer, Export, Imported, invalid
from nmt.exchange.marian_weights import (
    ABSENT,
    EOS_PIECE,
    MARIAN,
    UNK_PIECE,
    EngineIds,
    number_marian,
    number_pieces,
)
from nmt.exchange.settings import (
    UNNAMED,
    make_trained,
    order_pieces,
    read_unigram,
    sentencepiece_of,
    settings_of,
)
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
    decoder, options = _read_decoder(directory)
    (npz,) = _find_files(directory, options.get("models"), 1, "*.npz")
    tensors, shape = marian_npz.read(npz)
    files = _find_files(directory, options.get("vocabs"), 2, *VOCABULARIES)
    ids, sides = [], []
    for name, path in zip(SIDES, (files[0], files[-1]), strict=True):
        ids.append(_read_vocabulary(path))
        is_model = path.suffix == ".spm"  # which cuts whole lines, the code of a language included
        kind, model = (Unigram, path) if is_model else (MarianSegmenter, directory / f"{name}.spm")
        sides.append(Side(read_unigram(kind, model, UNNAMED), ids[-1].vocabulary))
    shared = ids[0].to_json() == ids[1].to_json()
    if shape["tie"] == "all" and not shared:
        names = f"{files[0].name} and {files[-1].name} number pieces differently"
        advice = "name the vocabulary of both sides in decoder.yml under vocabs"
        raise invalid(npz, f"one embedding, but {names}; {advice}")
    positions, search = MARIAN_NPZ.sinusoids.overrides(), marian_npz.search_of(decoder, options)
    settings = settings_of(positions, search, shape, trained_length, shared)
    weights = marian_weights.to_nmt(npz, tensors, settings.model, ids, MARIAN)
    trained = make_trained(npz, settings, weights, sides, trained_length)
    return Imported(trained, CTRANSLATE2, partial(open_scorer, npz, settings.decode, *ids))


def _read_decoder(directory: Path) -> tuple[Path, dict[str, Any]]:
    """decoder.yml, or NAME.decoder.yml, and its options; none: the defaults of Marian count."""
    path = directory / DECODER
    paths = [path] if path.exists() else sorted(directory.glob("*.decoder.yml"))
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise invalid(directory, f"{names}; rename one to {DECODER}")
    if not paths:
        return path, {}
    return paths[0], marian_npz.parse(manifest.read_bytes(paths[0]), str(paths[0]))


def _find_files(directory: Path, named: Any, most: int, *patterns: str) -> list[Path]:
    """The files that decoder.yml names, whatever their folder, or those of the first pattern."""
    names = named if isinstance(named, list) else [named] if named else []
    files = [directory / name for name in dict.fromkeys(Path(str(name)).name for name in names)]
    files = files or next(filter(None, (sorted(directory.glob(p)) for p in patterns)), [])
    listed = ", ".join(path.name for path in files)
    if not 0 < len(files) <= most or any(path.suffix in UNREAD for path in files):
        expected = "one file" if most == 1 else "one or two files"
        what = f"expected {expected}, neither factored (.fsv) nor packed (.bin)"
        advice = "under models and vocabs of decoder.yml"
        raise invalid(directory, f"{listed or f'no {patterns[0]}'}: {what}, {advice}")
    names_say_side = (
        any(word in path.name.lower() for word in words)
        for words, path in zip(SIDES.values(), files, strict=False)
    )
    if not names and len(files) == 2 and not all(names_say_side):
        what = f"{listed}: the names do not say which is of the source"
        raise invalid(directory, f"{what}; name both in decoder.yml under vocabs, the source first")
    return files


def prepare(trained: Trained) -> Export:
    """Prepare the export of a model; UserError for one that Marian does not support."""
    if trained.settings.model.activation == "gelu":
        raise UserError(f"model.activation=gelu: {marian_npz.GELU}; train with relu or swish")
    ids = [number_marian(side.vocabulary) for side in (trained.source, trained.target)]
    vocabularies = _vocabulary_files(trained, ids)

    def write(directory: Path, precision: str) -> EngineScorer:
        directory.mkdir()
        names = [name for name in vocabularies if name.startswith("vocab.")]
        decoder = {"models": [NAME], "vocabs": [names[0], names[-1]], "relative-paths": True}
        decoder |= marian_npz.to_search(trained.settings.decode)
        tensors = marian_weights.to_engine(trained, ids, MARIAN)
        npz = marian_npz.write(tensors, trained.settings.model, [side.size for side in ids])
        files = {DECODER: marian_npz.dump(decoder), NAME: npz}
        for name, data in {**vocabularies, **files}.items():
            (directory / name).write_bytes(data)
        return open_scorer(directory / NAME, trained.settings.decode, *ids)

    def usage(name: str) -> str:
        """Python for pymarian; it runs SentencePiece unless Marian does."""
        codes = [*language_codes(trained.source.vocabulary)]
        spm = "source.spm" not in vocabularies
        return model_card.render("marian_npz_card.jinja", name=name, codes=codes, spm=spm).strip()

    return Export(trained, write, usage=usage)


def _vocabulary_files(trained: Trained, ids: Sequence[EngineIds]) -> dict[str, bytes]:
    """SentencePiece models if their ids are those of the model, if not, lists of pieces."""
    contents = models = [sentencepiece_of(side) for side in (trained.source, trained.target)]
    files, kind = dict[str, bytes](), "spm"
    if [_ids_of_sentencepiece(model) for model in models] != [side.to_json() for side in ids]:
        contents, kind = [dump_vocabulary(side.to_json()) for side in ids], "yml"
        files = {"source.spm": models[0], "target.spm": models[1]}
    sides = ("",) if contents[0] == contents[1] else ("src.", "trg.")
    names = [f"vocab.{side}{kind}" for side in sides]
    return files | dict(zip(names, contents, strict=False))


def _read_vocabulary(path: Path) -> EngineIds:
    ids = parse_vocabulary(manifest.read_bytes(path), path)
    pieces = order_pieces(path, ids)
    if missing := {EOS_PIECE, UNK_PIECE} - ids.keys():
        raise invalid(path, f"has no {min(missing)}")
    return number_pieces(path, pieces, [ABSENT, ABSENT, ids[EOS_PIECE], ids[UNK_PIECE]])


def parse_vocabulary(data: bytes, path: Path) -> dict[str, Any]:
    """The ids in a vocabulary of Marian; UserError (65) for another file.

    .spm, .json, .yml (lines `piece: id`, or `? piece` and `: id`), or else a piece in each line.
    """
    try:
        if path.suffix == ".spm":
            return _ids_of_sentencepiece(data)
        if path.suffix == ".json":
            return {str(piece): number for piece, number in json.loads(data).items()}
        lines = data.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
        if path.suffix not in (".yml", ".yaml"):
            return {line: number for number, line in enumerate(lines)}
        # libraries of YAML refuse the characters of some pieces
        lines = "\n".join(lines).replace("\n: ", ": ").split("\n")
        halves = [line.removeprefix("? ").rsplit(":", 1) for line in lines if line.strip()]
        return {_unquote(key.rstrip(" ")): int(number) for key, number in halves}
    except (ValueError, OverflowError, AttributeError, RecursionError, yaml.YAMLError):
        raise invalid(path, "expected a piece and its id in each line") from None


def dump_vocabulary(ids: Mapping[str, int]) -> bytes:
    """The lines of a .yml."""
    lines = (f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for piece, i in ids.items())
    return "".join(lines).encode()


def _unquote(key: str) -> str:
    """A key of YAML without its quotes and escapes."""
    if len(key) > 1 and key[0] == key[-1] == "'":
        return key[1:-1].replace("''", "'")
    if len(key) > 1 and key[0] == key[-1] == '"':
        with suppress(ValueError):  # YAML has more escapes, and reads some characters differently
            return str(json.loads(key))
        return str(yaml.safe_load(key))
    return key


def _ids_of_sentencepiece(model: bytes) -> dict[str, int]:
    p = SentencePieceProcessor(model_proto=model)
    special = {p.eos_id(): EOS_PIECE, p.unk_id(): UNK_PIECE}
    return {special.get(i, p.id_to_piece(i)): i for i in range(len(p))}


def open_scorer(
    npz: Path, decode: Decode, source: EngineIds, target: EngineIds
) -> CTranslate2Scorer:
    """Let CTranslate2 convert a model.npz, and open the result.

    Its converter gets the tensors and options of the file, with three changes: Marian's sinusoids,
    since it computes different ones; options that the file leaves out, or in their usual form; and
    names for the pieces, since it does not read every vocabulary.
    """
    from ctranslate2.converters import MarianConverter

    orders = [side.numbers[EOS:] for side in (source, target)]
    names = [["", "", EOS_PIECE, UNK_PIECE, *map("p{}".format, order[2:])] for order in orders]
    with TemporaryDirectory() as work, np.load(npz, allow_pickle=False) as file:
        tensors = dict(file)
        options = marian_npz.parse_config(tensors[marian_npz.CONFIG], npz)
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
