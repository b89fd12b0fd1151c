"""How much work the pipeline does, counted and not timed: its sources are rewritten so that they count themselves.

One unit is one call of a function, one turn of a loop or of a comprehension, and one element that something written in C
walks over in one go: `in` a list or a deque (as far as the element), `remove`, `index`, `insert`, `pop` from the front, a
slice, a copy, `sum`, `sorted`, and any other built-in that is given a container. What is known to cost the same however long
the container is (`append`, `in` a dict) costs one. So a scan cannot hide in C, and a slow or busy machine changes nothing.

Counting needs a process of its own (`counts_of`), as the sources are rewritten when the pipeline is first imported. Not
counted: work outside of `aiokprod.pipeline` (the event loop's), and `next(iter(a_dict))` on a dict with many holes.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import BuiltinFunctionType, CodeType, GeneratorType, MethodWrapperType, ModuleType
from typing import Any

import aiokprod  # nothing of the pipeline is imported with it

PACKAGE = "aiokprod.pipeline."
CONTAINERS = (list, tuple, deque, dict, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))
SCANNED = (list, tuple, deque)
BUILT = (list, tuple, deque, dict, set, frozenset, bytes, bytearray)
CHEAP = {
    "append", "appendleft", "popleft", "popitem", "add", "discard", "get", "setdefault", "keys", "values", "items",
    "extend", "update", "__contains__", "__len__", "__getitem__",
}  # fmt: skip
"""Methods of containers: the same for each call, or as much as the argument is long."""
CHEAP_FUNCTIONS = {
    "len", "isinstance", "issubclass", "iter", "next", "id", "hash", "callable", "getattr", "heappush", "heappop",
    "bisect_right", "bisect_left", "repr",
}  # fmt: skip


class Work:
    """The units counted so far. Each rewritten module knows it as `__work__`."""

    def __init__(self) -> None:
        self.done = 0
        self.most_in_one_callback = 0

    def turn(self) -> bool:
        """Count one turn of a loop, or one call."""
        self.done += 1
        return True

    def walked(self, value: object) -> Any:
        """Count a container that is copied, or whose elements are added to another."""
        if isinstance(value, CONTAINERS):
            self.done += len(value)
        return value

    def moved(self, value: object) -> None:
        """Count a container that is about to be cut in the middle."""
        if isinstance(value, list | deque):
            self.done += len(value)

    def contains(self, item: object, container: Any) -> bool:
        if not isinstance(container, SCANNED):
            self.done += 1
            return item in container
        for each in container:
            self.done += 1
            if each is item or each == item:
                return True
        return False

    def equal(self, one: object, other: object) -> bool:
        if isinstance(one, CONTAINERS) and isinstance(other, CONTAINERS):
            self.done += min(len(one), len(other))
        return one == other

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self.done += 1
        if isinstance(function, BuiltinFunctionType | MethodWrapperType):
            name, owner = function.__name__, function.__self__
            if isinstance(owner, SCANNED) and name in ("pop", "insert"):
                self.done += self._behind(owner, args)
            elif isinstance(owner, CONTAINERS) and name not in CHEAP and name != "pop":
                self.done += len(owner)
            walks = name not in CHEAP_FUNCTIONS and not isinstance(owner, list | deque | dict)
            if walks or name in ("extend", "update"):
                args = tuple(self._counted(arg) for arg in args)
        elif getattr(function, "__origin__", function) in BUILT:
            args = tuple(self._counted(arg) for arg in args)
        return function(*args, **named)

    def _behind(self, owner: Any, args: Sequence[Any]) -> int:
        """Return how many elements move."""
        if not args:
            return 0
        at = args[0] if args[0] >= 0 else max(0, len(owner) + args[0])
        return max(0, len(owner) - at)

    def _counted(self, arg: Any) -> Any:
        """Count an argument that a function written in C may walk over."""
        if isinstance(arg, CONTAINERS):
            self.done += len(arg)
        elif hasattr(arg, "__next__") and not isinstance(arg, GeneratorType):  # a generator counts itself
            return self._passed_on(arg)
        return arg

    def _passed_on(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.done += 1
            yield item

    def watch_callbacks(self) -> None:
        """Note how much is done in one callback of an event loop: the longest standstill."""
        run = asyncio.Handle._run

        def counted(handle: asyncio.Handle) -> None:
            before = self.done
            try:
                run(handle)
            finally:
                self.most_in_one_callback = max(self.most_in_one_callback, self.done - before)

        asyncio.Handle._run = counted  # type: ignore[method-assign]


class Rewriter(ast.NodeTransformer):
    """A transformer that puts the counting into the source of a module."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._counted_body(node, node.args)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._counted_body(node, node.args)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._counted_body(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self._counted_body(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._counted_body(node)

    def _counted_body(self, node: Any, arguments: ast.arguments | None = None) -> ast.AST:
        self.generic_visit(node)
        at = 1 if arguments is not None and ast.get_docstring(node) is not None else 0
        node.body.insert(at, ast.Expr(_ask("turn")))
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs.insert(0, _ask("turn"))
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) > 1:
            return node
        one, other = node.left, node.comparators[0]
        match node.ops[0]:
            case ast.In():
                return _ask("contains", one, other)
            case ast.NotIn():
                return ast.UnaryOp(ast.Not(), _ask("contains", one, other))
            case ast.Eq():
                return _ask("equal", one, other)
            case ast.NotEq():
                return ast.UnaryOp(ast.Not(), _ask("equal", one, other))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return node  # it looks at its caller
        return ast.Call(_attribute("call"), [node.func, *node.args], node.keywords)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            return _ask("walked", node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _ask("walked", node) if isinstance(node.op, ast.Add | ast.Mult) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        node.value = _ask("walked", node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        return [*_moves(node.targets), node]

    def visit_Delete(self, node: ast.Delete) -> Any:
        self.generic_visit(node)
        return [*_moves(node.targets, any_index=True), node]

    def visit_List(self, node: ast.List) -> ast.AST:
        return self._unpacked(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        return self._unpacked(node)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        return self._unpacked(node)

    def _unpacked(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        is_made = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        return _ask("walked", node) if is_made and any(isinstance(e, ast.Starred) for e in node.elts) else node


def _attribute(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("__work__", ast.Load()), name, ast.Load())


def _ask(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_attribute(name), list(args), [])


def _moves(targets: Sequence[ast.expr], *, any_index: bool = False) -> list[ast.stmt]:
    """Return statements that count the elements behind a place that is cut out or replaced."""
    return [
        ast.Expr(_ask("moved", ast.parse(ast.unparse(target.value), mode="eval").body))
        for target in targets
        if isinstance(target, ast.Subscript) and (any_index or isinstance(target.slice, ast.Slice))
    ]


class Loader(SourceFileLoader):
    """A loader that compiles the rewritten source and caches nothing."""

    work: Work

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = Rewriter().visit(ast.parse(self.get_data(path), path))
        code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__work__"] = self.work
        super().exec_module(module)


class Finder(MetaPathFinder):
    """A finder of the pipeline's sources."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for entry in path or () if fullname.startswith(PACKAGE) else ():
            spec = FileFinder(entry, (Loader, SOURCE_SUFFIXES)).find_spec(fullname, target)
            if spec is not None:
                return spec
        return None


def count_work() -> Work:
    """Rewrite the modules of the pipeline that are imported from now on."""
    assert not any(name.startswith(PACKAGE) for name in sys.modules), "too late: it has been imported"
    Loader.work = Work()
    Loader.work.watch_callbacks()
    sys.meta_path.insert(0, Finder())
    return Loader.work


def counts_of(scenario: str, sizes: Sequence[int] = (20, 200, 2_000)) -> list[dict[str, int]]:
    """Play a scenario of `cost_scenarios.py` at each size, in a process of its own."""
    script = str(Path(__file__).with_name("cost_scenarios.py"))
    environment = os.environ | {"AIOKPROD_PURE": "1", "PYTHONPATH": str(Path(aiokprod.__file__).parents[1])}
    command = [sys.executable, script, scenario, *map(str, sizes)]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stderr
    counted: list[dict[str, int]] = json.loads(played.stdout)
    return counted
