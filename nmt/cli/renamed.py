"""Commands of before, each of which says what to type now."""

import sys

from nmt.errors import Exit

NOW = {
    "nmt-report": "nmt-evaluate RUN ... --test NAME=SRC,REF --html FILE",
    "nmt-compare": "nmt-train -m encoding=A,B, then nmt-evaluate RUN ... --rank",
    "nmt-demo": "make demo, or nmt-train -m experiment=demo encoding=absolute,relative",
    "nmt-parity": "nmt-encodings NAME --check",
    "nmt-testset": "nmt-recipe testset, with the same arguments",
}


def main() -> int:
    """The console script of each: one line on stderr, and the exit code of a wrong argument."""
    name = sys.argv[0].replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
    sys.stderr.write(f"nmt: {name} is now: {NOW.get(name, 'another command; see README')}\n")
    return int(Exit.USAGE)


if __name__ == "__main__":
    sys.exit(main())
