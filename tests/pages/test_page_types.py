"""Every program of every page has the types that strict type checkers ask for: mypy and pyright, as in a user's environment."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from page_programs import Block, blocks, label, python_pages

import aiokprod

LIMIT_S: Final = 600.0
OF_SPARK: Final = """
from typing import cast
import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import SparkSession
from aiokprod import audit
from aiokprod.spark import write_each_batch
spark = cast(SparkSession, None)
df = orders = orders_of_the_day = counts = log = cast(DataFrame, None)
table = cast(pyarrow.Table, None)
tables = [df]
options = {"topic": "orders"}
def to_columns(frame: DataFrame) -> DataFrame:
    return frame
"""
OF_LETTERS: Final = "from aiokprod import Producer\nfrom aiokprod.errors import AiokprodError\n"
GIVEN: Final = {"docs/audit.md": OF_SPARK, "docs/spark.md": OF_SPARK, "docs/dead_letters.md": OF_LETTERS}
"""What the examples of a page take for granted."""
ONE_PROGRAM_A_SECTION: Final = ("docs/frameworks.md",)
"""Pages where each block of a section that is no file goes on where the one before ended."""
SLOW: Final = (
    "docs/audit.md",
    "docs/dead_letters.md",
    "docs/frameworks.md",
    "docs/how-to/deployment.md",
    "docs/spark.md",
    "docs/tutorial.md",
)
"""Pages with FastAPI, Litestar or PySpark, whose types take half a minute."""
SERVICES: Final = {
    "aws_msk_iam_sasl_signer.pyi": """
class MSKAuthTokenProvider:
    @staticmethod
    def generate_auth_token(region: str, aws_debug_creds: bool = ...) -> tuple[str, int]: ...
""",
    "azure/identity.pyi": """
class AccessToken:
    token: str
    expires_on: int
class DefaultAzureCredential:
    def get_token(self, *scopes: str) -> AccessToken: ...
""",
}
"""What pages use of packages of cloud services, which are too large to be installed for it."""
OF_PYARROW: Final = ("reportMissingTypeStubs", "reportUnknownMemberType", "reportUnknownVariableType")
RELAXED: Final = {
    "docs/columns.md": OF_PYARROW,
    "docs/exactly_once.md": ("reportMissingTypeStubs",),  # aiokafka
    "docs/how-to/security.md": ("reportMissingModuleSource",),  # of SERVICES there are only types
    "docs/prometheus.md": ("reportUnknownVariableType",),  # prometheus-client
    "docs/spark.md": OF_PYARROW,
    "docs/transactions.md": (*OF_PYARROW, "reportUnknownArgumentType"),  # aiokafka
}
"""The rules of pyright's strict mode that the programs of a page break, each as a library has no types. No other page may."""


def given(text: str, before: str) -> str:
    """Return what a program uses of that which its page takes for granted, and what this uses."""
    wanted, bound, found = set[str](), set[str](), list[str]()
    for statement in ast.parse(text).body:
        uses, binds = names_of(statement)
        wanted |= uses - bound
        bound |= binds
    for statement in reversed(ast.parse(before).body):
        uses, binds = names_of(statement)
        if wanted & binds:
            wanted |= uses - binds
            found.insert(0, ast.unparse(statement))
    return "".join(f"{each}\n" for each in found)


def names_of(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Return the names that are used, and those that are bound."""
    used, bound = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
    return used, bound


def programs(page: Path) -> dict[str, str]:
    """Return the modules of a page, by the names of their files."""
    name, found = label(page), dict[str, str]()
    together: dict[str, list[Block]] = {}
    for block in blocks(page, "python"):
        if name in ONE_PROGRAM_A_SECTION and "file" not in block.marks:
            together.setdefault(block.section, []).append(block)
        elif name in GIVEN and "file" not in block.marks and "asyncio.run" not in block.text:
            found[unnamed(block)] = given(block.text, GIVEN[name]) + block.text
        else:
            found[block.marks.get("file", unnamed(block))] = block.text
    for section in together.values():
        found[unnamed(section[0])] = "\n".join(block.text for block in section)
    return found


def unnamed(block: Block) -> str:
    return re.sub(r"\W", "_", block.name).lower() + ".py"


def is_of_files(page: Path) -> bool:
    return any("file" in block.marks for block in blocks(page, "python"))


def check(folder: Path, pages: list[Path], cache: Path) -> None:
    """Run mypy --strict as a user does, without this project's settings."""
    for page in pages:
        for name, text in programs(page).items():
            (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--ignore-missing-imports"]
    command += [
        "--follow-imports=silent",
        "--cache-dir",
        str(cache),
        *sorted(path.name for path in folder.glob("*.py")),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_the_programs_of_most_pages_pass_mypy_strict(tmp_path: Path, cache: Path) -> None:
    pages = [page for page in python_pages() if label(page) not in SLOW and not is_of_files(page)]
    assert len(pages) >= 15
    check(tmp_path, pages, cache)


def with_files() -> list[Any]:
    """Return the pages whose programs are files that import each other, and the slow ones."""
    pages = [page for page in python_pages() if label(page) in SLOW or is_of_files(page)]
    return [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (label(page) in SLOW)) for page in pages]


@pytest.mark.parametrize("page", with_files())
def test_the_programs_of_a_page_pass_mypy_strict(page: Path, tmp_path: Path, cache: Path) -> None:
    check(tmp_path, [page], cache)


def pyright(folder: Path, mode: str, relaxed: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str]]:
    """Return what pyright says about all pages: the page, the rule and the message. Its settings are those of a user."""
    pages = python_pages()
    folders = {label(page): f"page_{number}" for number, page in enumerate(pages)}
    for page in pages:
        (folder / folders[label(page)]).mkdir()
        for name, text in programs(page).items():
            (folder / folders[label(page)] / name).write_text(text, encoding="utf-8")
    for name, text in SERVICES.items():
        (folder / "typings" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "typings" / name).write_text(text, encoding="utf-8")
    home = Path(aiokprod.__file__).parents[1]
    # An installed one is found by --pythonpath. Named here too, site-packages would come before the stubs of pyright.
    paths = {"extraPaths": [] if home.name == "site-packages" else [str(home)]}
    settings = {"stubPath": "typings", "typeCheckingMode": mode, "pythonVersion": f"3.{sys.version_info.minor}"} | paths
    roots = [{"root": folders[name], **paths, **dict.fromkeys(rules, "warning")} for name, rules in relaxed.items()]
    settings |= {"include": ["page_*"], "executionEnvironments": roots}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] >= len(pages)
    names = {number: name for name, number in folders.items()}
    found = list[tuple[str, str, str]]()
    for each in answer["generalDiagnostics"]:
        file = Path(each["file"]).relative_to(folder.resolve())
        said = f"{file.name}:{each['range']['start']['line'] + 1}: {each['message']}"
        found.append((names[file.parts[0]], each.get("rule", ""), f"{each['severity']}: {said}"))
    return found


@pytest.mark.slow
def test_the_programs_of_all_pages_pass_pyright_with_its_default_rules(tmp_path: Path) -> None:
    said = pyright(tmp_path, "standard", {})
    assert [each for each in said if each[2].startswith("error")] == []
    assert {each[:2] for each in said} == {("docs/how-to/security.md", "reportMissingModuleSource")}  # see SERVICES


@pytest.mark.slow
def test_the_programs_of_all_pages_pass_strict_pyright(tmp_path: Path) -> None:
    said = pyright(tmp_path, "strict", RELAXED)
    assert [each for each in said if each[2].startswith("error")] == []
    assert {each[:2] for each in said} == {(name, rule) for name, rules in RELAXED.items() for rule in rules}, (
        "RELAXED has others"
    )


def test_every_block_of_python_of_a_page_is_in_one_of_its_programs() -> None:
    for page in python_pages():
        text = page.read_text(encoding="utf-8")
        together = "\n".join(programs(page).values())
        found = blocks(page, "python")
        assert all(block.text in together for block in found), page
        assert text.count("```python\n") == len(found), page
