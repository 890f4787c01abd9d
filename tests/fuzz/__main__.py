"""`python -m tests.fuzz TARGET --seconds N`: fuzz one target, or all; what fails is kept in tests/fuzz/found."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.fuzzing import bound_memory, fuzz
from tests.fuzz.targets import TARGETS

FOUND = Path(__file__).with_name("found")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=None, help="default: the clock's")
    asked = parser.parse_args()
    bound_memory()
    failed = False
    for name in TARGETS if asked.target == "all" else [asked.target]:
        seed = asked.seed if asked.seed is not None else time.time_ns() % 10**9
        findings = fuzz(TARGETS[name], seed=seed, seconds=asked.seconds)
        sys.stdout.write(f"{name}: {findings.summary()} (seed {seed})\n")
        sys.stdout.flush()
        for data, error in findings.failures:
            failed = True
            path = FOUND / name / hashlib.sha256(data).hexdigest()[:12]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-4))
            sys.stdout.write(f"  {path}: {trace[-1500:]}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
