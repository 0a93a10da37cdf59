"""A worker as the bench starts them, whose figures are known: python fake.py NAME LOG HOW."""

import json
import sys
from pathlib import Path

name, log, how = sys.argv[1:]


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if how == "dead":
    sys.exit("Traceback of sorts\nModuleNotFoundError: no module named nothing\n")
say({"ready": {"version": how}})

for count, _ in enumerate(iter(sys.stdin.readline, ""), start=1):
    with Path(log).open("a") as file:
        file.write(name)
    if how == "dies" and count == 3:
        sys.exit("out of luck")
    if how == "babbles":
        sys.stdout.write("Downloading...\n")
        sys.stdout.flush()
    elif how == "lingers":
        sys.stdin.readline()
    elif how == "idle":
        say({"units": 0, "seconds": 1})
    else:
        say({"units": 100, "seconds": float(how) * count if how != "dies" else 1})
