"""Compiled modules lie beside their sources, and AIOKPROD_PURE=1 chooses the sources."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

import aiokprod
from aiokprod.forms import SourceFinder


def test_the_source_is_found_where_the_compiled_form_is_found_first(tmp_path: Path) -> None:
    (tmp_path / "batch.py").write_text("")
    (tmp_path / f"batch{EXTENSION_SUFFIXES[0]}").write_text("")
    paths = [str(tmp_path / "missing"), str(tmp_path)]
    compiled = PathFinder.find_spec("aiokprod.batch", paths)
    assert compiled is not None
    assert str(compiled.origin).endswith(EXTENSION_SUFFIXES[0])
    source = SourceFinder().find_spec("aiokprod.batch", paths)
    assert source is not None
    assert source.origin == str(tmp_path / "batch.py")


def test_what_is_not_ours_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    finder = SourceFinder()
    assert finder.find_spec("other.other", [str(tmp_path)]) is None
    assert finder.find_spec("aiokprod.nothing", [str(tmp_path)]) is None
    assert finder.find_spec("aiokprod", None) is None


def test_which_form_is_used_is_told_and_can_be_chosen() -> None:
    def told(**variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "AIOKPROD_PURE"} | variables
        program = "import aiokprod, aiokprod.pipeline.partition.batch as b; print(aiokprod.compiled, b.__file__)"
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert told(AIOKPROD_PURE="1").startswith("False ")
    assert told(AIOKPROD_PURE="1").rstrip().endswith("batch.py")
    is_built = told(AIOKPROD_PURE="0").startswith("True ")
    assert is_built or not os.environ.get("AIOKPROD_EXPECT_COMPILED"), "also where a test starts a process of its own"
    assert told().startswith(f"{is_built} ")
    if not os.environ.get("AIOKPROD_PURE"):
        assert aiokprod.compiled is is_built
