"""`PYTHONPATH=tests python3 -m gate change`, or `long [WORD ...]`: only the steps with one of these words in their names."""

from __future__ import annotations

import os
import sys

from gate.change import run_change
from gate.long_run import run_long
from gate.steps import StepFailedError, say

USAGE = "usage: python3 -m gate change | long [WORD ...]   (with PYTHONPATH=tests)"


def main(words: list[str]) -> int:
    """Run what the words name; return the exit status."""
    if words[:1] == ["change"] and len(words) == 1:
        work = run_change
    elif words[:1] == ["long"]:
        work = lambda: run_long(words[1:])  # noqa: E731
    else:
        say(USAGE)
        return 2
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of its pytest runs would compile all tests again
    try:
        return 0 if work() else 1
    except StepFailedError as error:
        say(f"FAILED: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
