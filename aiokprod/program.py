"""`has_ended`: whether the program has ended and the interpreter is on its way out. Stateless.

Then Python has ended the threads of `concurrent.futures`, and from 3.12 on it begins no thread any more. The loop of a
daemon thread still runs for as long as the functions of `atexit` do, and a producer on it delivers what it has
(`aiokprod.unclosed`). Code that would use a thread does its work on the loop instead.
"""

from __future__ import annotations

import threading


def has_ended() -> bool:
    """Return whether the program's main thread has ended. Of a forked child: the thread that forked is its main thread."""
    return not threading.main_thread().is_alive()
