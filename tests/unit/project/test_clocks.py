"""No unit test waits for the real clock: it waits for an event, or its time is virtual.

    python tests/unit/project/test_clocks.py

prints each timed sleep on the real clock. Time is virtual where `VIRTUAL` says so: a name of the runner in the function that
sleeps, or, for a helper, in its module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SLEEPS = ("asyncio.sleep", "time.sleep", "anyio.sleep", "sleep")
VIRTUAL = (
    "run_virtual",  # aiokprod.testing.virtual, tests/unit/cluster/virtual_time.py
    "run_in_virtual_time",  # tests/unit/pipeline/rig.py
    "played",  # tests/unit/testing/virtual/test_virtual_threads.py
    "VirtualNetwork",
    "VirtualRun",
)
VIRTUAL_RIGS = (
    "virtual_rig",
    "virtual_time",
    "metadata_rig",
    "pool_rig",
    "cost_scenarios",
    "small_world",
    "txn_rig",
    "consuming_rig",
    "fake_group",
)
"""Modules that only run scenarios in virtual time."""
REAL = re.compile(r"asyncio\.run\(|asyncio\.Runner|uvloop\.run|both_loops|from rig import .*\brun\b(?!_)")
"""What modules have that also run scenarios on the real clock: there each function has to name its runner."""
ON_THE_REAL_CLOCK = {
    ("cluster/scripted_broker.py", "eventually"): "the pause between two looks at a condition, on real sockets",
    ("pipeline/rig.py", "until"): "the pause between two looks at a condition, on real sockets",
    ("testing/faults/targets.py", "eventually"): "the pause between two looks at a condition, on real sockets",
    ("testing/kafka_cluster/test_java_process.py", "eventually"): "a condition of another process",
    ("pipeline/behaviour/test_processes_on_mock.py", "_run"): "a condition of another process",
    ("cli/common/test_running.py", "until_taken"): "the state of another process",
    ("consuming/test_exactly_once_of_clients.py", "until_copied"): "what other clients and processes have written",
    ("consuming/test_confluent_source_of_the_client.py", "until"): "what the threads of another client have done",
    ("testing/proxy/test_proxy.py", "eventually"): "a condition of another thread",
    (
        "cluster/connection/test_connection_time.py",
        "test_answers_in_the_socket_are_read_before_a_timeout_is_judged",
    ): "stops the loop, with bytes in a socket",
    (
        "cluster/dialing/test_handshake.py",
        "test_an_address_for_which_no_time_is_left_is_told_as_that",
    ): "stops the loop, with bytes in a socket",
    ("testing/virtual/test_virtual_endings.py", "until"): "played on sockets and in virtual time, which must agree",
    ("testing/virtual/test_virtual_endings.py", "peer_closes_with_something_unread"): "the same",
    ("testing/virtual/test_virtual_endings.py", "test_nothing_is_noticed_while_reading_is_paused"): "the same",
    (
        "testing/checker/test_checker.py",
        "test_a_loop_that_stands_still_is_measured",
    ): "stops the loop: that is measured",
    (
        "testing/mock/test_mock_security.py",
        "test_the_lifetime_of_a_session_is_told_and_ended",
    ): "the lifetime of a session on real sockets, 1 ms",
}


def sleeps(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that sleep for a time; `sleep(0)` gives the loop a turn and is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and node.args:
            if not (isinstance(node.args[0], ast.Constant) and node.args[0].value == 0):
                yield node


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the outermost functions and methods with their names, and every other statement without one."""
    for statement in tree.body:
        for part in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            yield getattr(part, "name", ""), part


def on_the_real_clock() -> Iterator[tuple[str, str, int]]:
    """Yield the file, the function and the line of each timed sleep whose time is not virtual."""
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        imported = {node.module for node in imports} | {alias.name for node in imports for alias in node.names}
        is_virtual = bool(imported & {*VIRTUAL_RIGS, *VIRTUAL}) and REAL.search(text) is None
        is_all_virtual = is_virtual or path.stem in VIRTUAL_RIGS
        for name, function in functions(tree):
            names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            if not is_all_virtual and not names & set(VIRTUAL):
                for call in sleeps(function):
                    yield path.relative_to(TESTS).as_posix(), name, call.lineno


def test_no_test_waits_for_the_real_clock() -> None:
    found = [
        f"{file}:{line} ({name})" for file, name, line in on_the_real_clock() if (file, name) not in ON_THE_REAL_CLOCK
    ]
    assert not found, "wait for an event, or run in virtual time:\n" + "\n".join(found)


def test_each_exception_is_still_needed() -> None:
    assert set(ON_THE_REAL_CLOCK) == {(file, name) for file, name, _ in on_the_real_clock()}


def test_a_sleep_is_found_wherever_it_stands() -> None:
    program = "async def f():\n async def g():\n  await asyncio.sleep(0.1)\n await asyncio.sleep(0)\n time.sleep(x)\n"
    assert {call.lineno for call in sleeps(ast.parse(program))} == {3, 5}


if __name__ == "__main__":
    print("\n".join(f"{file}:{line} ({name})" for file, name, line in on_the_real_clock()))
