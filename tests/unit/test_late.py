"""Modules that are loaded late: nothing is loaded for a name in an annotation, and the annotation can be evaluated."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import aiokprod
from aiokprod.late import Late

UNUSED = """
import sys
from aiokprod.late import Late
csv = Late("csv")
def read() -> "csv.DictReader": ...
assert "csv" not in sys.modules
import typing
assert typing.get_type_hints(read)["return"].__name__ == "DictReader"
assert "csv" in sys.modules and csv.DictReader is sys.modules["csv"].DictReader
"""


def test_a_module_is_loaded_when_its_name_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_name_that_the_module_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'aiokprod\.waiting' has no attribute 'Nothing'"):
        _ = Late("aiokprod.waiting").Nothing
    assert repr(Late("aiokprod.waiting")) == "Late('aiokprod.waiting')"


def public_functions() -> Iterator[Any]:
    """Yield the functions that users call, and the methods of the classes that they use."""
    for name in aiokprod.__all__:
        found = getattr(aiokprod, name)
        if inspect.isfunction(found):
            yield pytest.param(found, id=name)
        if not inspect.isclass(found):
            continue
        for member in dir(found):
            method: Any = inspect.getattr_static(found, member)
            method = getattr(method, "__func__", getattr(method, "fget", method))
            if inspect.isfunction(method) and not member.startswith("_"):
                yield pytest.param(method, id=f"{name}.{member}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_annotations_of_public_functions_can_be_evaluated(function: Any) -> None:
    assert "return" in typing.get_type_hints(function)
