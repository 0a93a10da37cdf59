"""nmt-evaluate: score and compare models or files of translations, by source length."""

import argparse
import json
import logging
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.cli.decoding import KEYS, change_of, changed, described
from nmt.cli.parser import Parser, once
from nmt.cli.words import run
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.experiments.texts import BY_SENTENCE, COLUMNS, columns_named, with_columns

if TYPE_CHECKING:
    from nmt.compare.report import Report
    from nmt.modeldir import Trained

log = logging.getLogger(__name__)

USAGE = """nmt-evaluate SYSTEM [SYSTEM ...] --reference REF [--source SRC] [OPTION ...]
                    [decode.KEY=VALUE ...]"""
EPILOG = """
Each SYSTEM is [LABEL=]PATH: a run directory or checkpoint, which translates SRC, or a file of
translations. The first is the baseline, against which the others are tested. Line N of all files
belongs together; a line ends at LF; .gz is read too.

BLEU, chrF2 and TER are sacreBLEU's; BLEU-moses is cased BLEU on tokenised text. Shown when asked
for: TER-moses, the same for TER, and exact, the percentage of lines equal to the reference (white
space normalised, case counts).
The score of a bucket is the corpus score of its pairs. The table goes to stdout, all else to
stderr.

How models search, unless as they were trained to:
"""
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # need no download
WORDS = "words (no model to count pieces)"


class Word(NamedTuple):
    """One SYSTEM of the command line."""

    label: str
    path: Path

    @property
    def is_model(self) -> bool:
        """A directory is a model, anything else a file of translations."""
        return self.path.is_dir()


class Lengths(NamedTuple):
    """Source lengths, and the segmenter that counted them (None: words)."""

    values: list[int] | None
    unit: str | None
    segmenter: dict[str, Any] | None


class Texts(NamedTuple):
    """What was read."""

    references: list[str]
    sources: list[str] | None
    hypotheses: dict[str, list[str]]  # by label; of files only
    columns: dict[str, list[str]]  # by name; integers beside the sources


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Read, translate, score, show."""
    asked, words, changes = understood(argv)
    if asked.quiet:
        logging.getLogger().setLevel(logging.WARNING)
    from nmt.compare.buckets import parse_bounds
    from nmt.compare.scores import parse_names

    bounds, metrics = parse_bounds(asked.bounds), parse_names(asked.metric)
    outputs.prepare([asked.json, asked.output_dir and asked.output_dir / "LABEL.txt"], asked.plot)
    texts = _read(asked, words)
    started = time.monotonic()
    limits, lengths, language, decodes = _systems(asked, words, changes, texts)
    from nmt.compare import text
    from nmt.compare.report import ComparedSystem, Report
    from nmt.compare.scoring import Bootstrap, TranslatedTest, score

    log.info("scoring %d pairs of %d systems", len(texts.references), len(limits))
    test = TranslatedTest(
        references=texts.references,
        hypotheses=[[texts.hypotheses[label]] for label in limits],
        language=language,
        sources=texts.sources,
        lengths=lengths.values,
        unit=lengths.unit,
        longest_trained=list(limits.values()),
        metrics=metrics,
        tokenize=asked.tokenize,
    )
    made = Report(
        systems=[ComparedSystem(label, longest) for label, longest in limits.items()],
        tests=[score(test, Bootstrap(bounds, asked.samples, asked.seed))],
        samples=asked.samples,
        seed=asked.seed,
        about=_about(asked, words, language, decodes),
    )
    log.info("done in %.0f s", time.monotonic() - started)
    _keep(asked, made)  # before the table: its reader may be `head`, and go away
    sys.stdout.write(text.blocks(made))


def understood(argv: list[str]) -> tuple[argparse.Namespace, list[Word], dict[str, str]]:
    """Options, systems and decode settings; raises UserError, or SystemExit as argparse does."""
    parser = Parser(
        prog="nmt-evaluate",
        usage=USAGE,
        description="Score and compare models or files of translations, by source length.",
        epilog=EPILOG + "\n".join(map(described, KEYS)),
    )
    add = parser.add_argument
    add("words", nargs="+", metavar="SYSTEM", help="[LABEL=]PATH of a model or of translations")
    add("--reference", required=True, type=Path, metavar="REF", help="the right translations")
    add("--source", type=Path, metavar="SRC", help="needed by models, and to count lengths")
    add("--columns", metavar=COLUMNS, help="integers beside SRC, for models that ask for them")
    add("--by-sentence", action="store_true", help=BY_SENTENCE)
    add("--bounds", default="25,50,75,100", help="last length of each bucket (default %(default)s)")
    add("--lengths", metavar="MODEL", help="counts source pieces (default: the first model)")
    add("--target-language", metavar="CODE", help="for tokenisers (default: the model's, or en)")
    add("--tokenize", choices=TOKENIZERS, help="of BLEU (default: 13a; zh, ja, ko: their own)")
    add(
        "--metric",
        metavar="A,B",
        help="which of these, first one drawn (default: BLEU,BLEU-moses,chrF2,TER)",
    )
    add("--samples", type=_at_least(40), default=1000, help="bootstrap samples (default 1000)")
    add("--seed", type=_at_least(0), default=12345, help="of the bootstrap (default 12345)")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the first metric by length: .png, .svg or .pdf",
    )
    add("--output-dir", type=Path, metavar="DIR", help="keep models' translations as LABEL.txt")
    add("--device", default="auto", help="cpu, cuda, cuda:1, or auto: a GPU if there is one")
    add("--quiet", action="store_true", help="no progress, only warnings")
    asked = parser.parse_intermixed_args(argv)
    settings = [w for w in asked.words if w.startswith("decode.") and "=" in w]
    once(settings)
    words = [_word(w) for w in asked.words if w not in settings]
    _check_words(asked, words, settings)
    return asked, words, dict(change_of(word) for word in settings)


def _at_least(least: int) -> Callable[[str], int]:
    def number(word: str) -> int:
        if int(word) < least:
            raise argparse.ArgumentTypeError(f"{word} is below {least}")
        return int(word)

    return number


def _word(word: str) -> Word:
    """Split [LABEL=]PATH; a path that exists as it stands needs no label."""
    label, equals, rest = word.partition("=")
    if not equals or Path(word).exists():
        path = Path(word)
        whole = path.resolve()
        label = whole.name if path.is_dir() else path.name.removesuffix(".gz")
        if whole.parent.name == "checkpoints":
            label = f"{whole.parent.parent.name}@{whole.name}"
        elif not path.is_dir():
            label = Path(label).stem
    else:
        path = Path(rest)
    if not label or (equals and not rest) or re.search(r"[/\\\x00-\x1f]", label) or label[0] == ".":
        raise UserError(f"{word}: expected LABEL=PATH, the label fit for a file name")
    return Word(label, path)


def _check_words(asked: argparse.Namespace, words: list[Word], settings: list[str]) -> None:
    if not words:
        raise UserError("no system: give models or files of translations", Exit.USAGE)
    labels = [word.label for word in words]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise UserError(f"{twice}: two systems of this name; give LABEL=PATH", Exit.USAGE)
    models = [word for word in words if word.is_model]
    if models and asked.source is None:
        raise UserError(f"{models[0].path}: a model needs a text to translate; add --source SRC")
    if settings and not models:
        raise UserError(f"{settings[0]}: none of the systems is a model; leave it out")
    if asked.lengths and asked.source is None:
        raise UserError(f"--lengths {asked.lengths}: no text to count in; add --source SRC")
    if asked.by_sentence and not (models or asked.lengths):
        raise UserError("--by-sentence: no model reads the text; give one, or --lengths MODEL")


def _read(asked: argparse.Namespace, words: list[Word]) -> Texts:
    """Read all files; UserError unless each has as many lines as the references, and some."""
    from nmt.data.corpus import read_text
    from nmt.data.joined import by_sentence

    references = read_text(asked.reference)
    if not references:
        raise UserError(f"{asked.reference}: the file is empty; give references", Exit.DATA)

    def parallel(path: Path) -> list[str]:
        lines = read_text(path)
        if len(lines) != len(references):
            raise UserError(
                f"{path}: has {len(lines)} lines, but {asked.reference} has {len(references)}; "
                "line N of both must belong together",
                Exit.DATA,
            )
        return lines

    sources: list[str] | None = parallel(asked.source) if asked.source else None
    if asked.by_sentence:
        sources = list(by_sentence(asked.source))
    found = {word.label: parallel(word.path) for word in words if not word.is_model}
    if empty := sum(not line.strip() for line in references):
        log.warning("%s: %d references are empty; all words count as wrong", asked.reference, empty)
    beside = {n: parallel(Path(path)) for n, path in columns_named(asked.columns).items()}
    return Texts(references, sources, found, beside)


def _systems(
    asked: argparse.Namespace, words: list[Word], changes: dict[str, str], texts: Texts
) -> tuple[dict[str, int | None], Lengths, str, dict[str, Any]]:
    """Translate with the models; trained lengths, source lengths, language, decode settings."""
    limits: dict[str, int | None] = {}
    lengths, language = Lengths(None, None, None), asked.target_language
    counter = asked.lengths or next((str(word.path) for word in words if word.is_model), None)
    decodes: dict[str, Any] = {}
    unread = set(texts.columns)
    if texts.sources is not None:
        lengths = _lengths(counter, texts.sources)
    for word in words:
        longest = None
        if word.is_model and texts.sources is not None:
            trained = _load(word.path, asked.device)
            language = language or trained.settings.data.target_language
            longest = _longest(word, trained, lengths)
            decode = changed(trained.settings, changes).decode
            decodes[word.label] = vars(decode)
            texts.hypotheses[word.label] = _translate(word, trained, decode, texts, asked)
            unread -= trained.model.columns
        limits[word.label] = longest
    if unread:
        log.warning("--columns: no model reads %s", ", ".join(sorted(unread)))
    return limits, lengths, language or "en", decodes


def _load(path: Path, device: str) -> "Trained":
    # torch takes seconds to import, and files of translations do without
    from nmt import device as devices
    from nmt import modeldir

    return modeldir.load(path, str(devices.pick(device)))


def _lengths(counter: str | None, sources: list[str]) -> Lengths:
    """Count source pieces as a model does, or words where there is no model."""
    if counter is None:
        return Lengths([len(line.split()) for line in sources], WORDS, None)
    from nmt.data.seams import pieces_of

    segmenter = _load(Path(counter), "cpu").source.segmenter
    values = [len(pieces_of(segmenter, line)) for line in sources]
    return Lengths(values, f"subword pieces of {_word(counter).label}", segmenter.to_json())


def _longest(word: Word, trained: "Trained", lengths: Lengths) -> int | None:
    """Longest source in a model's training, if its pieces are those that were counted."""
    if trained.source.segmenter.to_json() == lengths.segmenter:
        return int(trained.facts["longest_source"])
    log.warning(
        "%s: segments otherwise than lengths are counted; its trained length is not marked",
        word.label,
    )
    return None


def _translate(
    word: Word, trained: "Trained", decode: Any, texts: Texts, asked: argparse.Namespace
) -> list[str]:
    from tqdm import tqdm

    from nmt.decode.translator import Translator
    from nmt.memory import keep_memory

    keep_memory()
    sources = texts.sources or []
    read = {name: texts.columns[name] for name in trained.model.columns & set(texts.columns)}
    lines, columns = with_columns(trained, sources, read)
    bar = tqdm(
        Translator(trained, decode).translate(lines, 1, columns),
        desc=word.label,
        total=len(sources),
        unit=" lines",
        disable=True if asked.quiet else None,  # None: unless stderr is a terminal
    )
    lines = [translations[0].text for translations in bar]
    if asked.output_dir:
        text = "".join(f"{line}\n" for line in lines)
        outputs.write(asked.output_dir / f"{word.label}.txt", text.encode())
    return lines


def _about(
    asked: argparse.Namespace, words: list[Word], language: str, decodes: dict[str, Any]
) -> dict[str, Any]:
    """What a reader of the JSON file needs to get the same numbers."""
    return {
        **outputs.sources({"reference": asked.reference, "source": asked.source}),
        "target_language": language,
        "by_sentence": asked.by_sentence,
        "systems": [
            {"label": word.label, "path": str(word.path), "decode": decodes.get(word.label)}
            for word in words
        ],
    }


def _keep(asked: argparse.Namespace, made: "Report") -> None:
    """Write the files that were asked for."""
    if asked.json:
        text = json.dumps(made.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        outputs.write(asked.json, f"{text}\n".encode())
    if asked.plot:
        from nmt.compare import plot

        try:
            plot.draw(made, asked.plot)
        except OSError as error:
            raise UserError(f"{asked.plot}: {error.strerror}", Exit.CANT_CREATE) from None


if __name__ == "__main__":
    sys.exit(main())
