"""nmt-translate: translate lines of text by a trained model, N lines in, N lines out."""

import argparse
import json
import re
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt import __version__
from nmt.cli.command import pause_gc, run
from nmt.cli.options import Parser, add_translating, decode_overrides, integer
from nmt.cli.output import check_files, open_output
from nmt.cli.streams import is_complete, is_typed, open_input, prompt, text_lines
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.config.settings import Decode
    from nmt.decode.notes import Notes
    from nmt.decode.translator import Translation, Translator
    from nmt.exchange.engines import LoadedModels

ABOUT = "Translate lines of text by a trained model.\n"
USAGE = "nmt-translate MODEL [MODEL ...] [INPUT] [-o OUTPUT] [OPTION ...] [decode.KEY=VALUE ...]"
MANUAL = """
N lines in, N lines out, in the same order; an empty line has an empty TEXT. All text is UTF-8.
  (no option)       TEXT
  --scores          SCORE TAB TEXT
  --n-best N        LINE TAB RANK TAB SCORE TAB TEXT, up to N times, best first, LINE and RANK from
                    1; with decode.method=sample, N samples in the order in which they were drawn
  --alignment hard  TEXT ||| 0-0 1-2 ..., a word of the line and a word of TEXT, from 0; words are
                    what white space separates
  --alignment soft  TEXT ||| 0.9,0.08,0.02 ..., for each word of TEXT the weights of the words of
                    the line and, last, of its end
  --json            {"line": 1, "source": ..., "translations": [{"text": ..., "score": ...}]}
SCORE is the log-probability divided by the length penalty; of a sample, the log-probability under
the unchanged model (temperature 1, all tokens); with decode.mbr=N, the expected chrF2, from 0 to
100, by which the N candidates are ranked, each text once.

  MODEL MODEL ...   an ensemble: each piece is chosen by the mean of their probabilities; segmenters
                    and vocabularies must be equal, and the first has the search settings
  --columns         heads=FILE,order=FILE: line N of each file has integers for line N of INPUT, for
                    models that read them (dependency heads, for example)
  --target-prefix   line N of FILE is the beginning of translation N, in whole words
  -o OUTPUT         lines go to OUTPUT.part, which is renamed at the end; after an interruption the
                    same command continues there, with identical output; OUTPUT.part.json records
                    the state
  --engine          ctranslate2 (extra ct2) exports the model once, verifies the export like
                    nmt-export, and keeps it next to the checkpoint; auto does so on CPUs, or says
                    why nmt translates. A directory that nmt-export wrote for CTranslate2 is a MODEL
                    too. CTranslate2 has no sampling, --alignment, --target-prefix, or limits on an
                    output other than its length
"""

ENGINE = "what translates (default: nmt, and CTranslate2 for a directory of nmt-export)"
SETTING = re.compile(r"[\w.+~]+=")  # a file named a=b is typed as ./a=b
TEXT = ""  # the name of the text among the streams; columns have names
PREFIX = "--target-prefix"  # the name of the beginnings of the translations
ALIGNMENTS = {"hard": ("alignment", "-"), "soft": ("attention", ",")}  # field of JSON, separator


def command(argv: list[str]) -> None:
    """Translate; on disk nothing is touched before the model is known."""
    options = parse_arguments(argv)
    files = {TEXT: options.input, **options.parallel}
    check_files(options.output, [*files.values()])
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_input(path)) for name, path in files.items()}
        # torch takes seconds to import: --help and wrong arguments are answered before
        with pause_gc():
            from nmt.config.settings import with_decode
            from nmt.decode.notes import Notes
            from nmt.exchange import engines
            from nmt.system.resources import keep_memory

        keep_memory()
        loaded = engines.load(
            options.models,
            options.device,
            options.threads,
            options.workers,
            options.engine,
            options.changes,
            needs_of(options),
        )
        decode = with_decode(loaded.sides.settings, options.changes).decode
        if is_typed(options.input):  # each line is answered before the next one is read
            decode, opened[TEXT] = replace(decode, window=1), prompt(opened[TEXT])
        n_best = options.n_best or 1
        decode.check_n_best(n_best, f"--n-best {n_best}", "add decode.beam_size")
        translator = loaded.translator(decode)
        inputs = {name: text_lines(stream, files[name]) for name, stream in opened.items()}
        identity = identify(options, loaded, decode)
        output = stack.enter_context(open_output(options.output, files, identity))
        notes, done = Notes(output.progress.notes), output.progress.lines
        output.skip_finished(inputs.values())
        lines = make_records(options, translator, inputs, done, notes)
        for number, text in stack.enter_context(closing(lines)):
            output.write(text)
            if number % decode.window == 0:
                output.advance(number, notes.counts)


def identify(
    options: argparse.Namespace, loaded: "LoadedModels", decode: "Decode"
) -> dict[str, Any]:
    """Everything except the texts that determines the output."""
    number_format: str = decode.precision
    if number_format != "float32" and loaded.models and loaded.device == "cpu":
        from nmt.system.machine import this_machine

        number_format = this_machine().searched_in(number_format)
    return {
        "model": loaded.digests,
        **{f"decode.{key}": value for key, value in vars(decode).items()},
        "number format": number_format,
        "--n-best": options.n_best,
        "--scores": options.scores,
        "--json": options.json,
        "--alignment": options.alignment,
        "--device": loaded.device,
        "nmt": __version__,
    }


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Read the arguments; raises UserError, or SystemExit as argparse does.

    Besides the options: `models`, `input`, `changes` (key of decode -> value), and `parallel`, the
    files that are read in step with the input, by name.
    """
    parser = Parser("nmt-translate", USAGE, ABOUT, MANUAL, search=True)
    add = parser.add_argument
    add("model", metavar="MODEL", help="run of nmt-train, or a model directory")
    add(
        "arguments",
        nargs="*",
        default=[],  # or argparse requires one
        metavar="INPUT",
        help="text, perhaps .gz, .zst; none or -: stdin; a directory: another MODEL",
    )
    add("-o", "--output", help="file to write (default: stdout)")
    add("--n-best", type=integer(1, 1000), metavar="N", help="the N best translations, with scores")
    add("--scores", action="store_true", help="a score before each translation")
    add("--json", action="store_true", help="one JSON object per line")
    how = "which words belong together, by attention; hard: pairs, soft: weights"
    add("--alignment", choices=("hard", "soft"), help=how)
    add(PREFIX, metavar="FILE", help="line N begins the translation of line N; may be empty")
    add("--engine", choices=("nmt", "ctranslate2", "auto"), help=ENGINE)
    add_translating(parser)
    options = parser.parse_intermixed_args(argv)
    settings = [a for a in options.arguments if SETTING.match(a)]
    names = [a for a in options.arguments if not SETTING.match(a)]
    inputs = [a for a in names if not Path(a).is_dir()] or ["-"]
    if len(inputs) > 1:
        raise UserError(
            f"{inputs[0]}, {inputs[1]}: two inputs, as neither is the directory of a model; "
            "give one, or join them: cat A B | ..."
        )
    prefix = {} if options.target_prefix is None else {PREFIX: options.target_prefix}
    options.parallel = {**options.columns, **prefix}
    options.models = [options.model, *(a for a in names if Path(a).is_dir())]
    options.input, options.changes = inputs[0], decode_overrides(settings)
    return options


def needs_of(options: argparse.Namespace) -> list[str]:
    """The requested features that CTranslate2 lacks."""
    needs = {"target prefixes": options.target_prefix, "alignments": options.alignment}
    return [name for name, value in needs.items() if value is not None]


def make_records(
    options: argparse.Namespace,
    translator: "Translator",
    streams: Mapping[str, Iterator[str]],
    done: int,
    notes: "Notes",
) -> Generator[tuple[int, str], None, None]:
    """The number of each line after `done` lines, and its output, LF included."""
    from tqdm import tqdm

    lines, sources = tee(streams[TEXT])  # remembers what is not yet translated: some windows
    talks = (options.output is None and sys.stdout.isatty()) or is_typed(options.input)
    quiet = True if talks else None  # None: unless stderr is a terminal
    translated = translator.translate(
        lines,
        options.n_best or 1,
        {name: column for name, column in streams.items() if name not in (TEXT, PREFIX)},
        prefixes=streams.get(PREFIX),
        first=done + 1,
        notes=notes,
        read_ahead=all(map(is_complete, [options.input, *options.parallel.values()])),
        align=options.alignment is not None,
    )
    tqdm.monitor_interval = 0  # no further thread: see system.pool.may_fork
    progress = tqdm(translated, unit=" lines", disable=quiet, initial=done)
    with closing(translated):
        for number, (translations, line) in enumerate(
            zip(progress, sources, strict=False), done + 1
        ):
            yield number, format_record(options, number, line, translations)


def format_record(
    options: argparse.Namespace, number: int, line: str, translations: "list[Translation]"
) -> str:
    """One line of the input in the form that the options choose."""
    field, separator = ALIGNMENTS.get(options.alignment, ("", ""))
    alignments = [align_words(options.alignment, t) for t in translations]
    if options.json:
        best_first: list[dict[str, Any]] = []
        for t, rows in zip(translations, alignments, strict=True):
            best_first.append({"text": t.text, "score": round(t.score, 6)})
            if field:
                best_first[-1][field] = rows
        plain = {"line": number, "source": line, "translations": best_first}
        return json.dumps(plain, ensure_ascii=False) + "\n"
    texts = [t.text for t in translations]
    if field:
        for i, rows in enumerate(alignments):
            texts[i] += " ||| " + " ".join(separator.join(map(str, row)) for row in rows)
    scored = [f"{t.score:.4f}\t{text}\n" for t, text in zip(translations, texts, strict=True)]
    if options.n_best:
        return "".join(f"{number}\t{rank}\t{text}" for rank, text in enumerate(scored, 1))
    return scored[0] if options.scores else f"{texts[0]}\n"


def align_words(how: str | None, translation: "Translation") -> list[Any]:
    """Pairs of words, or a row of weights for each word of a translation."""
    if how is None or translation.alignment is None:
        return []
    if how == "hard":
        return translation.alignment.pairs
    return [[round(weight, 4) for weight in row] for row in translation.alignment.words.tolist()]


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
