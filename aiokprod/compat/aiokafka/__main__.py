"""Run a program with `install()` before it: `python -m aiokprod.compat.aiokafka PROGRAM.py ...`, or `... -m MODULE ...`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Final

from aiokprod.compat.aiokafka.installing import install

USAGE: Final = "python -m aiokprod.compat.aiokafka [-m MODULE | PROGRAM.py] [ARGUMENT ...]"


def main() -> None:
    """Install the producer, and run the program that the arguments name, as `python` would."""
    arguments = sys.argv[1:]
    is_module = arguments[:1] == ["-m"]
    if len(arguments) < (2 if is_module else 1):
        sys.exit(f"usage: {USAGE}")
    install()
    if is_module:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
