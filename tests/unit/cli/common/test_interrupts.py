"""Ctrl-C while modules are imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from random import Random

import pytest

from aiokprod.cli.common.interrupts import quiet_interrupt
from aiokprod.testing import MockCluster

LIMIT_S = 60.0


def test_an_interrupt_while_the_command_is_imported_ends_it_without_a_word() -> None:
    program = (
        "import sys, signal, builtins\n"
        "first = builtins.__import__\n"
        "def interrupted(name, *more, **named):\n"
        "    if name == sys.argv[3]:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    return first(name, *more, **named)\n"
        "builtins.__import__ = interrupted\n"
        "from aiokprod.cli.main import main\n"
        "main()\n"
    )
    for name in ("click", "aiokprod.cli.commands", "aiokprod.cli.common.connection"):
        done = subprocess.run(
            [sys.executable, "-c", program, "read", "t", name],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), name


STEPS = 60_000
"""calls of functions until `tail` waits for records, and less than it makes until then"""
DROPPING = ("__del__", "cb", "remove", "_remove")
"""finalizers and callbacks of weak references, those of Python's import too: Python drops what is raised in them"""


@pytest.mark.parametrize("seed", range(12))
def test_an_interrupt_at_any_step_of_a_start_ends_it_without_a_word(seed: int) -> None:
    program = (
        "import sys, signal\n"
        "from aiokprod.cli.main import main\n"
        "left = int(sys.argv.pop())\n"
        "def step(frame, event, argument):\n"
        "    global left\n"
        f"    if event == 'call' and frame.f_code.co_name not in {DROPPING}:\n"
        "        left -= 1\n"
        "        if not left:\n"
        "            sys.setprofile(None)\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.setprofile(step)\n"
        "main()\n"
    )
    step = 2 + round(STEPS ** Random(seed).random())  # the first is the call of `main`
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        done = subprocess.run(
            [sys.executable, "-c", program, "tail", "t", "-b", cluster.bootstrap_servers, str(step)],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), step


def test_little_is_imported_before_an_interrupt_is_caught() -> None:
    """Until then Python ends with a traceback, so what comes before is kept short."""
    program = (
        "import sys, signal\n"
        "before = set(sys.modules)\n"
        "set_handler = signal.signal\n"
        "def told(*arguments):\n"
        "    print(*sorted(set(sys.modules) - before))\n"
        "    signal.signal = set_handler\n"
        "    return set_handler(*arguments)\n"
        "signal.signal = told\n"
        "from aiokprod.cli.main import main\n"
        "main()\n"
    )
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path[:0] = {sys.path!r}; exec({program!r})",
        "--version",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    loaded, version = done.stdout.splitlines()
    assert version.startswith("aiokprod ")
    ours = {name for name in loaded.split() if name.startswith("aiokprod")}
    assert ours == {
        "aiokprod",
        "aiokprod.cli",
        "aiokprod.cli.main",
        "aiokprod.cli.common",
        "aiokprod.cli.common.interrupts",
    }
    assert not {"typing", "re", "importlib", "importlib.util", "click"} & set(loaded.split())


def test_the_handler_of_a_program_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.SIG_IGN, signal.default_int_handler):
            signal.signal(signal.SIGINT, handler)
            with quiet_interrupt():
                assert (signal.getsignal(signal.SIGINT) is handler) is (handler is signal.SIG_IGN)
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
