"""The public face: the names of the package, and the docstring of every public callable.

A docstring has, where they apply: `Args:` with a line for each parameter, `Returns:` (or a first line that begins with
"Return"), `Raises:`, and `Cancellation:` for what is awaited.

    python tests/unit/project/test_public_docstrings.py

prints each place where something is missing.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest

import aiokprod
from aiokprod import Delivery, Producer
from aiokprod.foreign_calls import OF_DELIVERIES

MODULES = (
    "aiokprod",
    "aiokprod.serializers",
    "aiokprod.explanation",
    "aiokprod.claims",
    "aiokprod.audit",
    "aiokprod.blocking",
    "aiokprod.compat.aiokafka",
    "aiokprod.config",
    "aiokprod.hooks",
    "aiokprod.integrations.aiohttp",
    "aiokprod.integrations.fastapi",
    "aiokprod.integrations.opentelemetry",
    "aiokprod.integrations.prometheus",
    "aiokprod.integrations.schema_registry",
    "aiokprod.integrations.starlette",
    "aiokprod.spark",
    "aiokprod.testing",
    "aiokprod.transactions.admin",
)
INNER = ("checked", "three_arguments")
"""Functions of `serializers` that the pipeline calls, and programs do not."""
MADE_BY_THE_LIBRARY = ("Delivery", "RecordMetadata")
"""Classes that programs receive and do not make: their parameters are not documented."""


def names_of(module: Any) -> list[str]:
    """Return the public names of a module."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in own if not name.startswith("_") and name not in INNER]


def public_callables(module_name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes, methods and properties of a module, with their names."""
    module = import_module(module_name)
    for name in names_of(module):
        value = getattr(module, name)
        if inspect.isfunction(value):
            yield f"{module_name}.{name}", value
        elif inspect.isclass(value):
            yield f"{module_name}.{name}", value
            for attribute, member in members(value):
                yield f"{module_name}.{name}.{attribute}", member


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class has from this package."""
    for name in sorted({name for base in kind.__mro__ for name in vars(base)}):
        home = next(base for base in kind.__mro__ if name in vars(base))
        if name.startswith("_") or not home.__module__.startswith("aiokprod"):
            continue
        value = vars(home)[name]
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        is_called = callable(getattr(kind, name))  # the compiled `send` is a descriptor, which makes a function
        if is_called or isinstance(value, property | functools.cached_property):
            yield name, value


def sections(text: str) -> dict[str, str]:
    """Return the sections of a docstring by name; the text of each, with what stands before the first as ''."""
    found = re.split(r"^(Args|Attributes|Returns|Yields|Raises|Cancellation):", text, flags=re.MULTILINE)
    return {"": found[0], **dict(zip(found[1::2], found[2::2], strict=True))}


def documented(section: str) -> set[str]:
    """Return the names that begin the lines of a section; `first, second: ...` documents two."""
    found = re.findall(r"^ {4}([*\w, ]+): ", section, re.MULTILINE)
    return {name.strip(" *") for names in found for name in names.split(",")}


def missing_in(name: str, value: Any) -> list[str]:
    """Return what the docstring of a public name lacks."""
    if isinstance(value, property | functools.cached_property):
        return [] if value.__doc__ else ["a docstring"]
    text = inspect.cleandoc(value.__doc__ or "")
    if not text:
        return ["a docstring"]
    parts = sections(text)
    if inspect.isclass(value):
        return missing_of_class(value, parts)
    return missing_of_call(value, parts)


def missing_of_class(kind: type, parts: dict[str, str]) -> list[str]:
    if issubclass(kind, Enum | BaseException) or getattr(kind, "_is_protocol", False):
        return []
    told = documented(parts.get("Args", "")) | documented(parts.get("Attributes", ""))
    if dataclasses.is_dataclass(kind):
        wanted = {field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")}
        if kind.__name__ == "ProducerConfig":
            return []  # docs/configuration.md has a table of its options, which a test compares with the class
        return [f"the field {name}" for name in sorted(wanted - told - texts_under_fields(kind))]
    if kind.__name__ in MADE_BY_THE_LIBRARY:
        return []
    return [f"the parameter {name}" for name in parameters_of(kind) if name not in told]


def texts_under_fields(kind: type) -> set[str]:
    """Return the fields of a class that a text follows."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
    }


def parameters_of(call: Any) -> list[str]:
    try:
        names = list(inspect.signature(call).parameters)
    except ValueError:  # an object without a constructor of its own
        return []
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def missing_of_call(call: Any, parts: dict[str, str]) -> list[str]:
    signature = inspect.signature(call)
    told = documented(parts.get("Args", ""))
    lacking = [f"the parameter {name}" for name in parameters_of(call) if name not in told]
    is_answered = signature.return_annotation not in ("None", None, "NoReturn", "Self", signature.empty)
    if is_answered and not {"Returns", "Yields"} & parts.keys() and not parts[""].startswith(("Return", "Yield")):
        lacking.append("Returns")
    if "Raises" not in parts and raises(call):
        lacking.append("Raises")
    is_awaited = inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)
    if is_awaited and "Cancellation" not in parts:
        lacking.append("Cancellation")
    return lacking


def raises(call: Any) -> bool:
    """Return whether the body of a function raises an error by name."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(call)))
    except (OSError, TypeError):  # compiled
        return False
    named = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call))
    return any(not isinstance(each.func, ast.Name) or each.func.id != "AssertionError" for each in named)


def in_a_new_process(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_dir_of_the_package_has_the_public_names_and_nothing_else() -> None:
    public = [*aiokprod.__all__, "__version__"]
    assert dir(aiokprod) == sorted(public)
    assert in_a_new_process("import aiokprod; print(dir(aiokprod))").strip() == str(sorted(public))
    assert all(getattr(aiokprod, name) is not None for name in public)


def test_importing_the_package_imports_nothing_of_the_producer() -> None:
    loaded = in_a_new_process("import sys, aiokprod; print(*(name for name in sys.modules if 'aiokprod' in name))")
    assert set(loaded.split()) <= {"aiokprod", "aiokprod.version", "aiokprod.forms"}


def test_help_of_the_package_has_an_overview() -> None:
    text = pydoc.plain(pydoc.render_doc(aiokprod))
    assert "async with Producer(" in text
    listed = set(re.findall(r"\b[A-Z]\w+|send_\w+", aiokprod.__doc__ or ""))
    assert {"Producer", "Delivery", "ProducerInterceptor", "Reader", "send_many", "send_columns"} <= listed
    assert not {"TYPE_CHECKING", "import_module", "_WHERE"} & set(re.findall(r"\w+", text))


def test_help_of_a_producer_has_its_public_methods_and_nothing_else() -> None:
    text = pydoc.plain(pydoc.render_doc(Producer))
    shown = set(re.findall(r"^ \|  (?:async )?([a-z]\w*)\(", text, re.MULTILINE))
    assert shown == {name for name, _ in members(Producer)}


def test_help_shows_no_comment_of_the_sources() -> None:
    # `help` takes the comment above a method that has no docstring: the ruler of a section, for example.
    classes = {getattr(aiokprod, name) for name in dir(aiokprod)} - {aiokprod.errors}
    pages = {kind.__name__: pydoc.plain(pydoc.render_doc(kind)) for kind in classes if inspect.isclass(kind)}
    assert len(pages) > 20
    assert [name for name, page in pages.items() if "# ------" in page] == []


def test_a_delivery_shows_nothing_that_can_break_it() -> None:
    public = {name for name in dir(Delivery) if not name.startswith("_")} - OF_DELIVERIES.keys()
    assert public == {
        "add_done_callback", "attempts", "cancel", "cancelled", "done", "exception", "explain", "get_loop", "latency",
        "recall", "remove_done_callback", "result", "size_bytes", "wait",
    }  # fmt: skip


@pytest.mark.pure("reads docstrings, which the compiled form does not have")
@pytest.mark.parametrize("module", MODULES)
def test_every_public_callable_says_what_a_caller_has_to_know(module: str) -> None:
    checked = list(public_callables(module))
    lacking = [f"{name}: {', '.join(missing)}" for name, value in checked if (missing := missing_in(name, value))]
    assert not lacking, "the docstrings lack\n" + "\n".join(lacking)
    assert checked


if __name__ == "__main__":
    for module in sys.argv[1:] or MODULES:
        for name, value in public_callables(module):
            if missing := missing_in(name, value):
                print(f"{name}: {', '.join(missing)}")
