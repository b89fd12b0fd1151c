"""The end of the program, as the loop of a daemon thread sees it while the functions of `atexit` run."""

from __future__ import annotations

import subprocess
import sys

from aiokprod.program import has_ended

PROGRAM = """
import atexit, threading
from aiokprod.program import has_ended

def at_exit():
    asked.set()
    answering.join()

def answer():
    asked.wait()
    print(has_ended())

asked = threading.Event()
answering = threading.Thread(target=answer, daemon=True)
answering.start()
atexit.register(at_exit)
threading.Thread(target=lambda: print(has_ended())).start()
"""


def test_a_program_has_ended_once_its_exit_functions_run() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[-1] == "True"
    assert not has_ended()
