"""The fast tests, and decoding in every number format, as if on other processors than this one.

    python scripts/processors.py [NAME ...]      all, or some of the names below

Variables tell torch's libraries to leave instructions unused that this processor has; those that
it has not cannot be tried. For each name: how many tests passed, and how many times as fast as
float32 decoding is in bfloat16 and int8 (a format that is not faster gives way to float32, so that
no ratio lies below 1 but by noise). Exit code 1 if a test failed or a ratio is below SLOWER.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

PROCESSORS = {
    "native": {},  # all that this one has
    "avx512-bf16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},  # Cooper Lake, Zen 4
    "avx512-vnni": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},  # Cascade Lake
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},  # Skylake
    "avx2": {  # Haswell, Zen 2
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
    "sse4": {  # before AVX
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ATEN_CPU_CAPABILITY": "default",
    },
}
KINDS = {f"nmt {kind}": kind for kind in ("float32", "bfloat16", "int8")}  # nmt's own engine
SLOWER = 0.95  # of float32's rate: less is not noise


def main() -> int:
    """Try the named processors, or all; returns the exit code."""
    names = sys.argv[1:] or list(PROCESSORS)
    if unknown := [name for name in names if name not in PROCESSORS]:
        sys.stderr.write(f"{unknown[0]}: no such name; there are {', '.join(PROCESSORS)}\n")
        return 2
    wrong = 0
    for name in names:
        environment = {**os.environ, **PROCESSORS[name]}
        began = time.monotonic()
        code, last = tests(environment)
        minutes = (time.monotonic() - began) / 60
        rates = decoding(environment)
        slow = min(rates.values()) < SLOWER
        words = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in rates.items())
        sys.stdout.write(f"{name}: {last} ({minutes:.1f} min); over float32: {words}\n")
        sys.stdout.flush()
        wrong += bool(code) or slow
    return int(wrong > 0)


def tests(environment: dict[str, str]) -> tuple[int, str]:
    """Run the fast tests; returns the exit code and pytest's last line."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--tb=short"],
        env={**environment, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=False,
    )
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        sys.stderr.write(f"{text}\n")
    return done.returncode, text.rpartition("\n")[2]


def decoding(environment: dict[str, str]) -> dict[str, float]:
    """Measure beam search in five interleaved rounds; returns each rate over float32's."""
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory) / "decoding.json"
        command = ["-m", "scripts.bench", "decoding", "--steady", "--peers", "none"]
        subprocess.run(
            [sys.executable, *command, "--json", str(figures)],
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        part = json.loads(figures.read_bytes())["parts"]["decoding"]
    return ratios(part["entries"])


def ratios(entries: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How many times as fast as float32 the other formats are, from the measured candidates."""
    seconds = {
        KINDS[entry["name"]]: [each["seconds"] for each in entry["rounds"]]
        for entry in entries
        if entry["name"] in KINDS
    }
    plain = seconds.pop("float32")
    return {
        kind: median(theirs / ours for ours, theirs in zip(each, plain, strict=True))
        for kind, each in seconds.items()
    }


if __name__ == "__main__":
    sys.exit(main())
