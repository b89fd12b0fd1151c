"""Every log line of the package is written by `GuardedLogger`: a filter or a handler that raises fails no caller of it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3] / "aiokprod"
GET_LOGGER = {
    "logs.py": "the guard itself",
    "cli/common/log_lines.py": "sets handlers and levels of a command",
    "spark/commit_log.py": "sets a handler where a job has none",
    "spark/discovered.py": "imports nothing of the package unless that works; Spark catches what it raises",
}
"""Modules that may ask for a logger, and why."""
WRITES = {"logs.py", "spark/discovered.py"}
"""Those of them that write lines to it."""
LEVELS = {"debug", "info", "warning", "warn", "error", "exception", "critical", "log"}


def written_past_the_guard(source: str, *, may_get: bool, may_write: bool) -> list[int]:
    """Return the numbers of lines that ask `logging` for a logger, or write to one, and may not."""
    tree = ast.parse(source)
    loggers = {"logging"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_get_logger(node.value):
            loggers |= {ast.unparse(target) for target in node.targets}
    found: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "logging":
            found.append(node.lineno)  # a name of its own would be seen by neither check
        if not isinstance(node, ast.Call):
            continue
        if is_get_logger(node) and not may_get:
            found.append(node.lineno)
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in LEVELS and not may_write:
            if is_get_logger(called.value) or ast.unparse(called.value) in loggers:
                found.append(node.lineno)
    return found


def is_get_logger(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger"


def test_no_module_writes_a_log_line_past_the_guard() -> None:
    found: dict[str, list[int]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        lines = written_past_the_guard(path.read_text(), may_get=name in GET_LOGGER, may_write=name in WRITES)
        if lines:
            found[name] = lines
    assert not found, f"use aiokprod.logs.GuardedLogger: {found}"


def test_the_modules_that_are_listed_here_ask_for_a_logger() -> None:
    for name in GET_LOGGER:
        assert "logging.getLogger" in (ROOT / name).read_text(), f"{name} needs no place here any more"


def test_a_line_that_is_written_in_another_way_is_found() -> None:
    ways = (
        "import logging\nlogger = logging.getLogger(__name__)",
        "import logging\nlogging.getLogger('aiokprod').info('x')",
        "import logging\nlogging.warning('x')",
        "from logging import getLogger",
    )
    for source in ways:
        assert written_past_the_guard(source, may_get=False, may_write=False), source
    told = "import logging\n_log = logging.getLogger('aiokprod')\n_log.error('x')"
    assert written_past_the_guard(told, may_get=True, may_write=False) == [3]
    assert not written_past_the_guard(told, may_get=True, may_write=True)
    assert not written_past_the_guard("import logging\nlevel = logging.INFO", may_get=False, may_write=False)
