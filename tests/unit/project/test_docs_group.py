"""The dependency group `docs` has all that the site is built with: `nox -s docs` installs nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from typing import Any, Final

import pytest
from docs_group import ROOT, closure, environment, files_outside

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LIMIT_S: Final = 120.0
NONE_OF_THE_GROUP: Final = ("pyspark", "hypothesis", "opentelemetry.sdk.trace")
PARTS: Final = f"""
import sys
sys.path.insert(0, {str(ROOT / "docs" / "_ext")!r})
import generated
names = [*generated.PARTS, *(f"api.{{page}}" for page in generated.API)]
for name in names:
    try:
        assert generated.part(name)
    except ImportError as error:
        print(f"{{name}}: {{error}}")
print(len(names))
"""


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a Python that has the group `docs` and nothing else."""
    return environment(tmp_path_factory.mktemp("group"), files_outside(closure(PROJECT, "docs")))


def run(program: str, group: dict[str, str]) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=group, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_generated_part_is_made_with_the_group_docs_alone(group: dict[str, str]) -> None:
    *missing, count = run(PARTS, group).splitlines()
    assert missing == []
    assert int(count) >= 15


def test_what_is_none_of_the_group_cannot_be_imported(group: dict[str, str]) -> None:
    program = "\n".join(
        f"try: import {name}\nexcept ModuleNotFoundError as error: print({name!r}.startswith(error.name))"
        for name in NONE_OF_THE_GROUP
    )
    assert run(program, group).split() == ["True"] * len(NONE_OF_THE_GROUP)


def test_the_closure_of_a_group_follows_groups_extras_and_requirements() -> None:
    project = {
        "project": {
            "name": "shop",
            "dependencies": ["sphinx", "none-such; python_version < '3'"],
            "optional-dependencies": {"a": ["shop[b]"], "b": ["myst-parser; python_version > '3'"], "c": ["aiokafka"]},
        },
        "dependency-groups": {"inner": ["shop[a]"], "outer": [{"include-group": "inner"}, "httpx2"]},
    }
    found = closure(project, "outer")
    assert {"shop", "sphinx", "docutils", "myst-parser", "markdown-it-py", "httpx2"} <= found
    assert not {"aiokafka", "none-such"} & found
