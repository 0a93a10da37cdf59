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
MANUAL = """
A card shows facts from the code (formula, hooks, parameters) and measurements on small models
(shifts, order, cached decoding).

--check builds a small model and checks that hooks return the documented shapes, that every
parameter gets a gradient, that later tokens, padding and (if the encoding is marked `relative`) a
common shift change nothing, and that decoding with a cache (token by token, several tokens at once,
with beams) gives the logits of the full pass. The small model has sizes of its own: model.*_layers
and model.feedforward_dim change nothing, nor do model.dim and model.heads unless the encoding
cannot be so narrow. NAME is an option of encoding=, or "[A,B]" for two together; without one, all
are checked. Exit codes of --check: 0 all passed, 70 something failed.

  nmt-encodings relative model=base tau=8
  nmt-encodings mine "[mine,relative]" --check --config-dir mine/conf
"""


def command(argv: list[str]) -> None:
    """List the encodings; describe or check some."""
    options = parse_arguments(argv)
    overrides, folders = options.overrides, options.folders
    if options.check or options.run:
        from nmt.checks import run as checks
        from nmt.system.device import pick, set_up

        device = pick(options.device or "cpu")
        set_up(device)
        lines = checks.check_encodings(options.names, overrides, folders, device)
        for line in checks.check_run(options.run, device) if options.run else lines:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        return
    for name in options.names:
        from nmt.checks.card import card
        from nmt.config.compose import experiment_of

        settings = experiment_of([f"encoding={name}", *overrides]).settings
        sys.stdout.write(card(name, settings, folders, {"CTranslate2": exportable(settings)}))
    if not options.names:
        _list_encodings(folders)


def _list_encodings(folders: "Folders") -> None:
    """Print names and first comments of all options by family; imports no torch."""
    from nmt.config.catalog import list_encodings

    listed, family = list_encodings(folders), ""
    width = max(len(facts.name) for facts in listed)
    for facts in listed:
        if facts.family != family:
            sys.stdout.write(f"\n{facts.family}\n" if family else f"{facts.family}\n")
            family = facts.family
        sys.stdout.write(f"  {facts.name:<{width}}  {facts.summary}\n")


def exportable(settings: "Settings") -> str:
    """Whether nmt-export can write a model for CTranslate2; if not, why."""
    from nmt.exchange.exporting import check_settings

    try:
        check_settings(settings, "ctranslate2")
    except UserError as error:
        return f"no: {error}"
    return "nmt-export --to ctranslate2 writes it, and compares"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Options, the names of encodings and overrides; raises UserError for what cannot be."""
    parser = Parser("nmt-encodings", USAGE, manual=MANUAL)
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
    named = [o for o in overrides if o.lstrip("+~").startswith("encoding=")]
    if named or (overrides and options.run):
        why = "--run checks a trained model as it is" if options.run else "name it alone: NAME"
        raise UserError(f"{(named or overrides)[0]}: {why}")
    options.overrides = [*config_dir_override(options.config_dir), *overrides]
    options.folders = folders_in(parse(config_dir_override(options.config_dir)))
    for name in options.names:
        for part in name.strip("[]").split(",") if options.check else [name]:
            path_of("encoding", part.strip(), options.folders)
    return options


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
