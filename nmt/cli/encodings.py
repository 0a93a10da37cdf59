"""nmt-encodings: which encodings there are, what each consists of, and whether it works."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.command import run
from nmt.cli.options import Parser
from nmt.errors import UserError

if TYPE_CHECKING:  # --help imports no Hydra
    from nmt.config.catalog import Folders
    from nmt.config.settings import Settings

USAGE = """nmt-encodings                                      all encodings, one line each
       nmt-encodings NAME [GROUP=OPTION] [KEY=VALUE ...]   one of them: its card
       nmt-encodings [NAME ...] --check [KEY=VALUE ...]    check its properties
       nmt-encodings --run DIR                             check a trained model"""
EPILOG = """
A card shows facts from the code (formula, hooks, parameters) and measurements on small models
(shifts, order, cached decoding).

--check builds a small model and checks that hooks return the documented shapes, that every
parameter gets a gradient, that later tokens, padding and (if the encoding is marked `relative`) a
common shift change nothing, and that decoding with a cache (token by token, several tokens at once,
with beams) gives the logits of the full pass. NAME is an option of encoding=, or "[A,B]" for two
together; without one, all are checked. Exit codes of --check: 0 all passed, 70 something failed.

  nmt-encodings relative model=base tau=8
  nmt-encodings mine "[mine,relative]" --check --config-dir mine/conf
"""
TOKENS = 64  # of the sentences in which an export looks at positions


def command(argv: list[str]) -> None:
    """List the encodings; describe or check some."""
    options = parse_arguments(argv)
    overrides, name, folders = options.overrides, options.name, options.folders
    if options.check or options.run:
        from nmt.checks import run as checks
        from nmt.system.device import pick, set_up

        device = pick(options.device or "cpu")
        set_up(device)
        lines = checks.check_encodings(options.names, overrides, folders, device)
        for line in checks.check_run(options.run, device) if options.run else lines:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    elif name is None:
        _list_encodings(folders)
    else:
        from nmt.checks.card import card
        from nmt.config.compose import experiment_of

        settings = experiment_of([f"encoding={name}", *overrides]).settings
        sys.stdout.write(card(name, settings, folders, {"CTranslate2": exportable(settings)}))


def _list_encodings(folders: "Folders") -> None:
    """Print names and first comments of all options by family; imports no torch."""
    from nmt.config.catalog import families, summary

    groups = families(folders)
    width = max(len(option) for options in groups.values() for option in options)
    for number, (family, options) in enumerate(groups.items()):
        lines = [f"  {o:<{width}}  {summary('encoding', o, folders)}" for o in options]
        sys.stdout.write("\n" * (number > 0) + "\n".join([family, *lines]) + "\n")


def exportable(settings: "Settings") -> str:
    """Whether nmt-export can write a model for CTranslate2; if not, why."""
    from nmt.build import shrunken
    from nmt.checks.example import perturbed
    from nmt.exchange import ctranslate2_spec

    small = shrunken(settings)
    try:
        ctranslate2_spec.positions(small, perturbed(small), TOKENS)
    except UserError as error:
        return f"no: {error}"
    return "nmt-export --to ctranslate2 writes it, and compares"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Options, the names of encodings and overrides; raises UserError for what cannot be."""
    parser = Parser(prog="nmt-encodings", usage=USAGE, epilog=EPILOG)
    add = parser.add_argument
    add("arguments", nargs="*", metavar="NAME", help="an option of encoding=")
    add("--check", action="store_true", help="try on a small model all that an encoding must do")
    add("--run", type=Path, metavar="DIR", help="a trained model to check")
    add("--device", metavar="DEVICE", help="where --check decodes: cpu (default), cuda, auto")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    options = parser.parse_intermixed_args(argv)
    from nmt.config.catalog import config_dir_override, folders_in, path_of
    from nmt.config.hydra_conf import parse

    overrides = [a for a in options.arguments if "=" in a or a.startswith("~")]
    options.names = [a for a in options.arguments if a not in overrides]
    options.name = options.names[0] if options.names else None
    _refuse(options, overrides)
    options.overrides = [*config_dir_override(options.config_dir), *overrides]
    options.folders = folders_in(parse(config_dir_override(options.config_dir)))
    for name in options.names:
        for part in name.strip("[]").split(",") if options.check else [name]:
            path_of("encoding", part.strip(), options.folders)
    return options


def _refuse(options: argparse.Namespace, overrides: list[str]) -> None:
    """Raise UserError for what would not be shown or checked as it is typed."""
    if options.run and (idle := [*options.names, *overrides]):
        raise UserError(f"{idle[0]}: --run checks all of a trained model, as it is; leave it out")
    if options.names[1:] and not options.check:
        others = " ".join(options.names[1:])
        raise UserError(f"{others}: expected KEY=VALUE after {options.name}")
    for override in overrides:
        if override.lstrip("+~").partition("=")[0] == "encoding":
            raise UserError(f"{override}: name it without encoding=: nmt-encodings NAME")
        if not (options.names or options.check):
            raise UserError(f"{override}: of which encoding? nmt-encodings NAME KEY=VALUE")


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
