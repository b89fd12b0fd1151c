"""No compiled coroutine awaits in a `finally`: mypyc would leave the exception on its way the thread's current one.

Then `sys.exc_info()` stays CancelledError after the task is gone, and a later bare `raise`, or another compiled
`finally`, raises it in a task that was not cancelled. The interpreter does it right, so only the sources can tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def compiled_sources() -> list[Path]:
    """Return the compiled sources, chosen as in `.build/backend.py`."""
    tree = ast.parse((ROOT / ".build" / "backend.py").read_text(encoding="utf-8"))
    named = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
        if not isinstance(node.value, ast.Call)
    }
    found = [path for pattern in named["COMPILED"] for path in sorted(ROOT.glob(pattern)) if path.name != "__init__.py"]
    return [path for path in found if path.relative_to(ROOT).as_posix() not in named["INTERPRETED"]]


def awaits(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield everything that may suspend, without what nested functions do."""
    waiting: list[ast.AST] = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Yield | ast.YieldFrom):
            yield node
        if not isinstance(node, NESTED):
            waiting.extend(ast.iter_child_nodes(node))


def suspending_finallies(source: str) -> list[int]:
    """Return the lines of awaits inside a `finally`."""
    return sorted(
        getattr(node, "lineno", 0)
        for block in ast.walk(ast.parse(source))
        if isinstance(block, ast.Try | ast.TryStar)
        for node in awaits(block.finalbody)
    )


def test_no_compiled_coroutine_awaits_in_a_finally() -> None:
    sources = compiled_sources()
    assert len(sources) > 40 and any(b"await " in path.read_bytes() for path in sources)
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sources
        for line in suspending_finallies(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_the_search_finds_them() -> None:
    source = """
async def closes():
    try:
        await one()
    finally:
        if condition:
            await two()
        async with three():
            pass
        async def later():
            await four()
    try:
        await five()
    except BaseException:
        await six()
"""
    assert suspending_finallies(source) == [7, 8]
