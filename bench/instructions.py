"""Instructions per record on the hot paths, in both forms, against a stored baseline: `python bench/instructions.py`.

    --check               compare with bench/instructions.json; exit 1 if a path costs more than the tolerance allows, or
                          if there is no baseline for this counter and Python
    --record              store these counts as the baseline
    --forms pure          one form only (or `compiled`); both by default
    --compiled PYTHON     an interpreter that has the compiled form; built (a minute) if not given
    --counter callgrind   under valgrind, two minutes; by default the processor's counter where it may be asked

The paths are described in `hot_paths.py`. Counts do not depend on the load of the machine; they do depend on how Python was
built, so a baseline belongs to a version of Python and to a counter.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

from compiled import compiled_python, environment_of
from counting import MARKER, dumped, may_use_perf
from hot_paths import RECORDS_OF, WITHOUT_SDK

HERE: Final = Path(__file__).parent
BASELINE: Final = HERE / "instructions.json"
TOLERANCE: Final = 0.05
"""Tolerance. Two runs of the same code differ by less than 0.5 %; on another patch release of Python, or on another processor
(libc picks its code by it), by 1 to 3 %."""

NOTHING_PAID: Final = 0.04
"""Share that a path with `open_telemetry()` and no SDK may cost more than the same path of a producer without it. Records
cost the same; their batches are not quite as many, and a batch costs about 5,000 instructions more in pure Python."""

Counts = dict[str, float]
"""Path -> instructions per record."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--forms", nargs="*", choices=["pure", "compiled"], default=["pure", "compiled"])
    parser.add_argument("--compiled", metavar="PYTHON")
    parser.add_argument("--counter", choices=["perf", "callgrind"])
    words = parser.parse_args()
    counter = words.counter or ("perf" if may_use_perf() else "callgrind")
    key = f"{counter}, {platform.machine()}, CPython {'.'.join(platform.python_version_tuple()[:2])}"
    found: dict[str, Counts] = {}
    if "pure" in words.forms:
        found["pure"] = count(sys.executable, counter, is_pure=True)
    if "compiled" in words.forms:
        found["compiled"] = count(words.compiled or str(compiled_python()), counter, is_pure=False)
    baselines = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    before: dict[str, Counts] = baselines.get(key, {})
    print(table(key, found, before))
    if words.record:
        baselines[key] = before | {form: {path: round(n, 1) for path, n in found[form].items()} for form in found}
        BASELINE.write_text(json.dumps(baselines, indent=1, sort_keys=True) + "\n")
    elif words.check:
        worse = regressions(found, before)
        for line in worse:
            print(line, file=sys.stderr)
        sys.exit(1 if worse else 0)


def count(python: str, counter: str, *, is_pure: bool) -> Counts:
    """Let a child walk the paths; return the mean of its rounds."""
    environment = environment_of("pure" if is_pure else "compiled") | {"PYTHONHASHSEED": "0"}
    with TemporaryDirectory() as folder:
        under = [] if counter == "perf" else callgrind(folder)
        command = [*under, python, str(HERE / "hot_paths.py"), counter]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        told = json.loads(done.stdout)
        if told["compiled"] == is_pure:
            raise SystemExit(f"{python}: aiokprod.compiled is {told['compiled']}")
        counts = told["counts"] if counter == "perf" else dumped(told["counts"], Path(folder))
    by_path: dict[str, list[int]] = {}
    for path, instructions in counts:
        by_path.setdefault(path, []).append(instructions)
    return {path: fmean(rounds) / RECORDS_OF[path] for path, rounds in by_path.items()}


def callgrind(folder: str) -> list[str]:
    return [
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        f"--callgrind-out-file={folder}/callgrind.out",
        f"--dump-before={MARKER}",
    ]


def regressions(found: Mapping[str, Counts], before: Mapping[str, Counts]) -> list[str]:
    """Return a line for each path that costs more than its baseline, or than the same path without tracing, allows.

    Also for each that has no baseline.
    """
    lines = []
    for form, counts in found.items():
        for path, now in counts.items():
            plain = counts[path.removeprefix(WITHOUT_SDK)]
            if now > plain * (1 + NOTHING_PAID):
                lines.append(
                    f"{form}, {path}: {now:,.0f} instructions per record, {now / plain - 1:+.1%} on {plain:,.0f}"
                )
            stored = before.get(form, {}).get(path)
            if stored is None:
                lines.append(f"{form}, {path}: there is no baseline; record one with --record")
            elif now > stored * (1 + TOLERANCE):
                lines.append(
                    f"{form}, {path}: {now:,.0f} instructions per record, {now / stored - 1:+.1%} on {stored:,.0f}"
                )
    return lines


def table(key: str, found: Mapping[str, Counts], before: Mapping[str, Counts]) -> str:
    """Return the counts as text, with the change against the baseline."""
    head = f"{'instructions per record':<26}" + "".join(f"{form:>12}{'change':>10}" for form in found)
    lines = [f"({key})", head]
    for path in RECORDS_OF:
        line = f"{path:<26}"
        for form, counts in found.items():
            stored = before.get(form, {}).get(path)
            change = "" if stored is None else f"{counts[path] / stored - 1:+.1%}"
            line += f"{counts[path]:>12,.0f}{change:>10}"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
