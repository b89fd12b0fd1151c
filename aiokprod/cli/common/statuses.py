"""Exit statuses of every command; docs/command_line.md lists them."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
"""it was done, and the answer is good"""
NOT_GOOD: Final = 1
"""it was done, and the answer is bad: records failed, a check found something"""
NOT_DONE: Final = 2
"""it was not done: wrong arguments, no cluster, no right; one line on standard error says why"""
BY_SIGNAL: Final = 128
"""plus the signal's number: 130 Ctrl-C, 141 the reader of our output has ended, 143 SIGTERM"""
