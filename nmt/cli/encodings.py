"""nmt-encodings: what there is to choose from, and what each choice consists of."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.parser import Parser, once
from nmt.cli.words import run
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.overrides.options import Folders

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
    asked = understood(argv)
    if asked.markdown and not asked.table:
        raise UserError("--markdown: only the --table has a form for it")
    if asked.run and not asked.plot:
        raise UserError("--run: draws what a run has learnt; give --plot FILE, too")
    if asked.table:
        if asked.name is not None:
            raise UserError(f"{asked.name}: --table takes KEY=VALUE words, not a name")
        from nmt.cli.cards.table import table

        sys.stdout.write(table(asked.words, asked.markdown, asked.folders))
    elif asked.plot:
        _draw(asked)
    elif asked.name is None:
        if asked.given:
            raise UserError(f"{asked.given[0]}: of which encoding? nmt-encodings NAME KEY=VALUE")
        sys.stdout.write(listed(asked.folders))
    else:
        from nmt.cli.cards.card import card
        from nmt.overrides.compose import experiment_of

        settings = experiment_of([f"encoding={asked.name}", *asked.words]).settings
        shown = card(asked.name, settings, timed=not asked.no_timing, folders=asked.folders)
        sys.stdout.write(shown)


def understood(argv: list[str]) -> argparse.Namespace:
    """The words; raises UserError, or SystemExit as argparse does."""
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
    parser.add_argument("--run", type=Path, metavar="DIR", help="draw what a run has learnt")
    parser.add_argument("--config-dir", metavar="DIR", help="also look for options in DIR")
    asked = parser.parse_intermixed_args(argv)
    names = [w for w in asked.words if "=" not in w and not w.startswith("~")]
    asked.given = [w for w in asked.words if w not in names]
    asked.name = names[0] if names else None
    if len(names) > 1:
        raise UserError(f"{names[1]}: expected KEY=VALUE after {names[0]}")
    from nmt.overrides.options import beside, folders_of

    once(asked.given)
    asked.words = [*beside(asked.config_dir), *asked.given]
    asked.folders = folders_of(asked.words) or ()
    _check(asked.name, asked.folders)
    return asked


def _check(name: str | None, folders: "Folders") -> None:
    from nmt.overrides.compose import nearest
    from nmt.overrides.options import options_of

    if name is not None and name not in (known := options_of("encoding", folders)):
        raise UserError(f"{name}: no such encoding{nearest(name, known)}")


def listed(folders: "Folders" = ()) -> str:
    """All options by their families; imports no torch."""
    from nmt.overrides.options import families, summary

    groups = families(folders)
    width = max(len(o) for options in groups.values() for o in options)
    parts = []
    for group, options in groups.items():
        parts.append(group)
        parts += [f"  {o:<{width}}  {summary('encoding', o, folders)}" for o in options]
        parts.append("")
    return "\n".join(parts[:-1]) + "\n"


def _draw(asked: argparse.Namespace) -> None:
    from nmt.cli.cards import plot
    from nmt.experiments import outputs
    from nmt.overrides.compose import experiment_of

    outputs.prepare([], asked.plot)
    if asked.run is not None:
        if asked.given:
            raise UserError(f"{asked.given[0]}: a trained model is fixed; leave it out")
        plot.draw_run(asked.run, asked.name, asked.plot, asked.folders)
        return
    if asked.name is None:
        raise UserError("--plot: of which encoding? nmt-encodings NAME --plot FILE")
    settings = experiment_of([f"encoding={asked.name}", *asked.words]).settings
    plot.draw(settings, asked.name, asked.plot)


if __name__ == "__main__":
    sys.exit(main())
