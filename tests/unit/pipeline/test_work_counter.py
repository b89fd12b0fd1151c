"""The counter itself: a scan is seen wherever it hides, and what is cheap stays cheap."""

from __future__ import annotations

import ast
from collections import deque
from textwrap import indent

import pytest
from work_counter import Rewriter, Work

LENGTH = 1_000


def counted(statements: str) -> int:
    """Return the work of some statements over a list, a deque, a dict and a set of 1,000 elements."""
    source = "def play(items, line, table, names):\n" + indent(statements, "    ")
    code = compile(ast.fix_missing_locations(Rewriter().visit(ast.parse(source))), "<played>", "exec")
    work = Work()
    names: dict[str, object] = {"__work__": work, "deque": deque}
    exec(code, names)
    play = names["play"]
    assert callable(play)
    items = list(range(LENGTH))
    play(items, deque(items), dict.fromkeys(items, 1), set(items))
    return work.done


@pytest.mark.parametrize(
    "scan",
    [
        "for item in items: pass",
        "while items: items.pop()",
        "[item for item in items]",
        "any(item < 0 for item in items)",
        "-1 in items",
        "-1 not in line",
        "items.remove(999)",
        "items.index(999)",
        "line.remove(999)",
        "items.count(1)",
        "items.insert(0, 1)",
        "items.pop(0)",
        "del items[0]",
        "del items[:1]",
        "items[:1] = []",
        "items[1:]",
        "items + [1]",
        "[*items]",
        "[].extend(items)",
        "taken = []; taken += items",
        "items == list(range(1_000))",
        "sum(items)",
        "max(items)",
        "sorted(items)",
        "list(items)",
        "deque(table)",
        "set(items)",
        "dict(table)",
        "list[int](items)",
        "tuple(map(str, items))",
        "list(iter(items))",
        "sum(table.values())",
        "items.sort()",
        "items.copy()",
        "table.copy()",
        "items.clear()",
    ],
)
def test_a_scan_is_seen(scan: str) -> None:
    assert counted(scan) >= LENGTH - 1


@pytest.mark.parametrize(
    "cheap",
    [
        "items.append(1)",
        "items.pop()",
        "line.popleft()",
        "line.append(1)",
        "1 in table",
        "1 in names",
        "names.add(5)",
        "names.discard(5)",
        "table.get(5)",
        "table.pop(5)",
        "table[1] = 2",
        "del table[1]",
        "items[1] = 2",
        "items[1]",
        "len(items)",
        "isinstance(items, list)",
        "for item in items: break",
    ],
)
def test_what_costs_the_same_for_any_length_is_a_few_units(cheap: str) -> None:
    assert counted(cheap) < 10
