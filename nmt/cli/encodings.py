"""nmt-encodings: what there is to choose from, and what each choice consists of."""

import argparse
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import Parser, once
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
    overrides, name, folders = options.overrides, options.name, options.folders
    outputs.check_places([], None if options.table else options.plot)
    if options.table:
        from nmt.inspect.table import table

        sys.stdout.write(table(overrides, options.markdown, folders))
    elif options.run:
        from nmt.inspect import plot

        picture = (options.plot, lambda path: plot.draw_run(options.run, name, path, folders))
        outputs.write_all([picture])
    elif name is None:
        from nmt.inspect.listing import listed

        sys.stdout.write(listed(folders))
    else:
        from nmt.inspect import card, plot
        from nmt.overrides.compose import experiment_of

        settings = experiment_of([f"encoding={name}", *overrides]).settings
        if options.plot:
            outputs.write_all([(options.plot, lambda path: plot.draw(settings, name, path))])
        else:
            sys.stdout.write(card.card(name, settings, not options.no_timing, folders))


def understood(argv: list[str]) -> argparse.Namespace:
    """Options, the encoding's name and overrides; raises UserError for what cannot be."""
    parser = Parser(prog="nmt-encodings", usage=USAGE, epilog=EPILOG, groups=("model",))
    add = parser.add_argument
    add("arguments", nargs="*", metavar="NAME", help="an option of encoding=")
    add("--no-timing", action="store_true", help="leave out time and memory")
    add("--table", action="store_true", help="Table 1 of Dufter et al. (2022)")
    add("--markdown", action="store_true", help="the table as Markdown")
    add("--plot", type=Path, metavar="FILE", help="draw it: .png, .svg or .pdf")
    add("--run", type=Path, metavar="DIR", help="draw what a run has learned")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    options = parser.parse_intermixed_args(argv)
    from nmt.overrides.near import nearest
    from nmt.overrides.options import beside, folders_of, options_of

    given = [a for a in options.arguments if "=" in a or a.startswith("~")]
    names = [a for a in options.arguments if a not in given]
    options.name = names[0] if names else None
    if len(names) > 1:
        raise UserError(f"{names[1]}: expected KEY=VALUE after {names[0]}")
    once(given)
    options.overrides = [*beside(options.config_dir), *given]
    options.folders = folders_of(options.overrides) or ()
    known = options_of("encoding", options.folders)
    if options.name is not None and options.name not in known:
        raise UserError(f"{options.name}: no such encoding{nearest(options.name, known)}")
    _check(options, given)
    return options


def _check(options: argparse.Namespace, given: list[str]) -> None:
    """Refuse what has no meaning together."""
    if options.markdown and not options.table:
        raise UserError("--markdown: only the --table has a form for it")
    if options.run and not options.plot:
        raise UserError("--run: draws what a run has learned; give --plot FILE, too")
    if options.table and options.name is not None:
        raise UserError(f"{options.name}: --table takes KEY=VALUE, not a name")
    if options.table:
        return
    if options.run and given:
        raise UserError(f"{given[0]}: a trained model is fixed; leave it out")
    if options.name is None and options.plot and not options.run:
        raise UserError("--plot: of which encoding? nmt-encodings NAME --plot FILE")
    if options.name is None and given:
        raise UserError(f"{given[0]}: of which encoding? nmt-encodings NAME KEY=VALUE")


if __name__ == "__main__":
    sys.exit(main())
