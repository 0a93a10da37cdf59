"""nmt-encodings: what there is to choose from, and what each choice consists of."""

import argparse
import sys
from pathlib import Path

from nmt.cli.parser import Parser, once
from nmt.cli.words import run
from nmt.errors import UserError
from nmt.experiments import outputs

USAGE = """nmt-encodings                                      all encodings, one line each
       nmt-encodings NAME [GROUP=OPTION] [KEY=VALUE ...]   one of them: its card
       nmt-encodings [NAME] --plot FILE [--run DIR]        its picture
       nmt-encodings --table [--markdown] [KEY=VALUE ...]  all methods of the survey"""
EPILOG = """
A card tells what the code says (formula, hooks, parameters) and what trying shows on small models
(shifts, order, cached decoding) and on this machine (time and memory beside plain attention).

  nmt-encodings relative
  nmt-encodings relative model=base tau=8
  nmt-encodings relative --plot relative.png --run runs/toy/relative-seed1
  nmt-encodings mine --config-dir mine/conf
"""


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """List the encodings, describe or draw one, or make the table of all."""
    options = understood(argv)
    if options.plot and not options.table:
        _draw(options)
    else:
        sys.stdout.write(_text(options))


def understood(argv: list[str]) -> argparse.Namespace:
    """Options, name and overrides; raises UserError, or SystemExit as argparse does."""
    parser = Parser(
        prog="nmt-encodings",
        usage=USAGE,
        epilog=EPILOG,
    )
    parser.add_argument("words", nargs="*", metavar="NAME", help="an option of encoding=")
    parser.add_argument("--no-timing", action="store_true", help="leave out time and memory")
    parser.add_argument("--table", action="store_true", help="Table 1 of Dufter et al. (2022)")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .png, .svg or .pdf")
    parser.add_argument("--run", type=Path, metavar="DIR", help="draw what a run has learned")
    parser.add_argument("--config-dir", metavar="DIR", help="also look for options in DIR")
    options = parser.parse_intermixed_args(argv)
    names = [word for word in options.words if "=" not in word and not word.startswith("~")]
    options.given = [word for word in options.words if word not in names]
    options.name = names[0] if names else None
    if len(names) > 1:
        raise UserError(f"{names[1]}: expected KEY=VALUE after {names[0]}")
    from nmt.overrides.compose import nearest
    from nmt.overrides.options import beside, folders_of, options_of

    once(options.given)
    options.overrides = [*beside(options.config_dir), *options.given]
    options.folders = folders_of(options.overrides) or ()
    known = options_of("encoding", options.folders)
    if options.name is not None and options.name not in known:
        raise UserError(f"{options.name}: no such encoding{nearest(options.name, known)}")
    _check(options)
    return options


def _check(options: argparse.Namespace) -> None:
    """Refuse what has no meaning together."""
    name, given, table = options.name, options.given, options.table
    if options.markdown and not table:
        raise UserError("--markdown: only the --table has a form for it")
    if options.run and not options.plot:
        raise UserError("--run: draws what a run has learned; give --plot FILE, too")
    if table and name is not None:
        raise UserError(f"{name}: --table takes KEY=VALUE, not a name")
    if given and name is None and not table and not options.plot:
        raise UserError(f"{given[0]}: of which encoding? nmt-encodings NAME KEY=VALUE")


def _text(options: argparse.Namespace) -> str:
    if options.table:
        from nmt.inspect.table import table

        return table(options.overrides, options.markdown, options.folders)
    if options.name is None:
        from nmt.inspect.listing import listed

        return listed(options.folders)
    from nmt.inspect.card import card
    from nmt.overrides.compose import experiment_of

    settings = experiment_of([f"encoding={options.name}", *options.overrides]).settings
    return card(options.name, settings, timed=not options.no_timing, folders=options.folders)


def _draw(options: argparse.Namespace) -> None:
    from nmt.inspect import plot
    from nmt.overrides.compose import experiment_of

    outputs.prepare([], options.plot)
    if options.run is not None:
        if options.given:
            raise UserError(f"{options.given[0]}: a trained model is fixed; leave it out")
        plot.draw_run(options.run, options.name, options.plot, options.folders)
        return
    if options.name is None:
        raise UserError("--plot: of which encoding? nmt-encodings NAME --plot FILE")
    settings = experiment_of([f"encoding={options.name}", *options.overrides]).settings
    plot.draw(settings, options.name, options.plot)


if __name__ == "__main__":
    sys.exit(main())
