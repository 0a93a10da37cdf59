"""Former command names: each prints the command that replaces it."""

import sys

from nmt.errors import Exit

REPLACEMENTS = {
    "nmt-report": "nmt-evaluate RUN ... --test NAME=SRC,REF --html FILE",
    "nmt-compare": "nmt-train -m encoding=A,B, then nmt-evaluate RUN ... --rank",
    "nmt-demo": "make demo, or nmt-train -m experiment=demo encoding=absolute,relative",
    "nmt-parity": "nmt-encodings NAME --check",
    "nmt-testset": "nmt-recipe testset; see its --help",
}


def main() -> int:
    """The console script of each: one line on stderr, and the exit code of a wrong argument."""
    name = sys.argv[0].replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
    replacement = REPLACEMENTS.get(name, "another command; see the table in docs/commands.md")
    sys.stderr.write(f"nmt: {name} is now: {replacement}\n")
    return int(Exit.USAGE)


if __name__ == "__main__":
    sys.exit(main())
