"""Argos Translate as a client: run by the Python of an environment that has it, not by that of nmt.

Arguments: the codes of two languages. Translates each line of stdin, and writes a JSON list. What
would divide a line into sentences gives it back whole: that client has an option for it,
ARGOS_CHUNK_TYPE=NONE, but 1.11 then offers no translation at all.
"""

import json
import sys

from argostranslate import sbd, translate  # type: ignore[import-not-found]


def main() -> None:
    """Translate stdin."""
    sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
    translation = translate.get_translation_from_codes(*sys.argv[1:3])
    lines = sys.stdin.read().split("\n")
    sys.stdout.write(json.dumps([translation.translate(line) for line in lines]))


if __name__ == "__main__":
    main()
