"""A mark ("a look is due", "the alarm is set") is written behind the call that makes it true, never before it.

The call may raise: at the end of the stack or of the memory, in debug mode from another thread, through a signal. A mark
that was written before it stays, and each later call trusts it: nothing is ever scheduled again. The syntax tree of the
package shows where the order is the other one: an attribute or an item gets a value, and a call that schedules follows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[3] / "aiokprod"

SCHEDULES: Final = frozenset({
    "call_soon", "call_soon_threadsafe", "call_later", "call_at",
    "create_task", "ensure_future", "start_soon", "run_in_executor", "spawn", "_spawn",
    "_arm", "_arm_at", "_look_at", "_watch",  # ours, which call those
})  # fmt: skip
"""Names of functions that schedule."""

TIMERS: Final = frozenset({"_blocked", "_expiries", "_timeouts", "_wakes"})
"""Names of timer queues: `set` of one of them schedules."""

EXCEPTIONS: Final = {
    ("blocking/hand_over.py", "_take"): "the Outcome of a record that was sent; the call is about room for later ones",
    ("consuming/confluent_source.py", "_ask"): "a thread that is kept for the next call; it marks nothing as asked",
    (
        "pipeline/partition/outcomes.py",
        "_wake",
    ): "written first on purpose: after a crash `_wake_all` finds the tasks there",
    ("unclosed.py", "close_at_exit"): "a call that fails returns False, and the wait does not begin",
    ("cluster/pool.py", "_dialled"): "the look ends connections that were not used; it is no mark of these books",
    (
        "pipeline/delivery/unhandled_errors.py",
        "report",
    ): "the timer is set by then, and the call is about another thing",
    (
        "pipeline/partition/partition_queue.py",
        "_opened",
    ): "the mark is for the housekeeping, which forgets it by itself",
    ("pipeline/sending/parking.py", "accept"): "how the next record waits; it marks nothing",
    ("pipeline/sending/parking.py", "_park"): "the content of the record itself, which is not in any queue yet",
    ("pipeline/sending/parking.py", "_await_serializer"): "as of `_park`",
    ("pipeline/sending/parking.py", "_take_put_off"): "the count is of one that has left; the call is for others",
    ("pipeline/sending/parking.py", "_admitted"): "the charge is the record's, whatever follows; it is freed with it",
    ("thread_sends.py", "send_from_thread"): "the item is of a dict of the call's own",
}
"""Places that write before they schedule, by file and function, each with its reason."""

Finding = tuple[str, int, str, str]
"""The function, the line of the call, the call, and what was written before it."""


def schedules(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr == "set":
        return isinstance(function.value, ast.Attribute) and function.value.attr in TIMERS
    return function.attr in SCHEDULES


def is_nothing(value: ast.expr) -> bool:
    """Return whether the value says that nothing is scheduled: None, False, an empty list, infinity."""
    if isinstance(value, ast.Name):
        return value.id == "inf"
    if isinstance(value, ast.List | ast.Tuple):
        return not value.elts
    return (isinstance(value, ast.Constant) and not value.value) or (isinstance(value, ast.Dict) and not value.keys)


def marks_of(statement: ast.stmt) -> Iterator[str]:
    """Yield the attributes and items that the statement writes."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) or statement.value is None:
        return
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        together = target.elts if isinstance(target, ast.Tuple) else [target]
        values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value] * len(together)
        for each, value in zip(together, values, strict=False):
            if isinstance(each, ast.Attribute | ast.Subscript) and not is_nothing(value):
                yield ast.unparse(each)


def blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks within a statement, of which one or another runs."""
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    blocks += [case.body for case in getattr(statement, "cases", [])]
    return [block for block in blocks if block]


def ends(block: Sequence[ast.stmt]) -> bool:
    return isinstance(block[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def look(block: Sequence[ast.stmt], marks: list[str], name: str, found: list[Finding]) -> None:
    """Add the calls of a block that schedule behind a mark, and to `marks` what the block writes."""
    for statement in block:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        blocks = blocks_of(statement)
        inner = {id(each) for one in blocks for each in one}
        for part in ast.iter_child_nodes(statement):
            if id(part) in inner or isinstance(part, ast.ExceptHandler | ast.match_case):
                continue
            for node in ast.walk(part):
                if isinstance(node, ast.Call) and marks and schedules(node):
                    found.append((name, node.lineno, ast.unparse(node.func), marks[-1]))
        marks += marks_of(statement)
        before = list(marks)
        for one in blocks:
            # The blocks of a `try` follow each other; of others one runs.
            within = marks if isinstance(statement, ast.Try) else list(before)
            look(one, within, name, found)
            if within is not marks and not ends(one):
                marks += within[len(before) :]


def findings(source: str) -> list[Finding]:
    found: list[Finding] = []
    for node in ast.walk(ast.parse(source)):
        # An object that is being made is seen by nothing yet: if its `__init__` raises, there is none.
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
            look(node.body, [], node.name, found)
    return found


def sources() -> list[Path]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [path for path in paths if path.relative_to(PACKAGE).parts[0] not in ("testing", "cli", "spark", "audit")]


def test_no_mark_is_written_before_the_call_that_makes_it_true() -> None:
    seen: set[tuple[str, str]] = set()
    wrong: list[str] = []
    for path in sources():
        file = path.relative_to(PACKAGE).as_posix()
        for function, line, call, mark in findings(path.read_text()):
            seen.add((file, function))
            if (file, function) not in EXCEPTIONS:
                wrong.append(f"{file}:{line}: {function} writes {mark} before {call}(): call first, and mark behind it")
    assert not wrong, "\n".join(wrong)
    assert set(EXCEPTIONS) <= seen, f"no exception any more: {sorted(set(EXCEPTIONS) - seen)}"


@pytest.mark.parametrize(
    "body",
    [
        "self._is_woken = True\n    self._loop.call_soon(self._woken)",
        "if not alarm.is_set:\n        alarm.is_set = True\n        if late:\n            self._blocked.set(1.0, alarm)",
        "self._dials[key] = dial\n    dial.task = self._tasks.spawn(work, name)",
        "if first:\n        self._count += 1\n    else:\n        pass\n    loop.call_at(1.0, self._wake)",
        "try:\n        self._asked, self._at = True, 1.0\n    finally:\n        self._spawn(work)",
        "for each in queues:\n        each.is_due = True\n    asyncio.get_running_loop().call_later(1.0, look)",
    ],
)
def test_the_other_order_is_found(body: str) -> None:
    assert len(findings(f"def f(self):\n    {body}\n")) == 1


@pytest.mark.parametrize(
    "body",
    [
        "self._loop.call_soon(self._woken)\n    self._is_woken = True",
        "self._handle = self._loop.call_soon(self._woken)",
        "self._timer, self._timer_at = self._loop.call_at(at, self._wake), at",
        "self._timer = None\n    self._loop.call_soon(self._wake)",
        "if a:\n        self._is_woken = True\n        return\n    self._loop.call_soon(self._woken)",
        "if a:\n        self._is_woken = True\n    else:\n        self._loop.call_soon(self._woken)",
        "name = 'x'\n    self._tasks.spawn(work, name)",
    ],
)
def test_the_right_order_passes(body: str) -> None:
    assert findings(f"def f(self):\n    {body}\n") == []
