"""docs/testing.md is run: its files are the suite of a user, under each of the runners the page names.

pytest-asyncio is not among our own requirements (its plugin would be in every run of ours), so the slow tests fetch it
into a directory of the session.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import aiokprod

PACKAGES = str(Path(aiokprod.__file__).parents[1])  # where the aiokprod that is tested lies
PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
FILE = re.compile(r"<!-- file: (?P<name>\S+) -->\n```python\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = "pytestmark = pytest.mark.anyio\n"
LIMIT_S = 300.0

SCOPE = "asyncio_default_fixture_loop_scope = function"  # pytest-asyncio warns without it
RUNNERS = {  # the line in a module, and the settings
    "anyio": (MARK, ""),
    "pytest-asyncio strict": ("pytestmark = pytest.mark.asyncio\n", SCOPE),
    "pytest-asyncio auto": ("", f"asyncio_mode = auto\n{SCOPE}"),
}
ON_KAFKA = "_on_kafka.py"
MODULES = {
    "test_shop.py": 3,
    "test_shop_plainly.py": 1,
    "test_shop_seeds.py": 1,
    "test_kiosk.py": 4,
    "test_kiosk_seeds.py": 1,
    "test_memory_producer.py": 7,
}
MODULES_ON_KAFKA = {"test_shop_on_kafka.py": 1, "test_kiosk_on_kafka.py": 1}


def files() -> dict[str, str]:
    return {match["name"]: match["text"] for match in FILE.finditer(PAGE.read_text())}


@pytest.fixture(scope="session")
def pytest_asyncio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pytest-asyncio and nothing else."""
    folder = tmp_path_factory.mktemp("pytest_asyncio")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(folder),
        "pytest-asyncio>=1",
    ]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return folder


def run(folder: Path, runner: str, modules: dict[str, int], path: Path | None = None) -> None:
    """Run the page's modules in `folder` with `runner`: all tests must pass without a warning."""
    done = outcome(folder, runner, modules, path)
    assert re.search(rf"^{sum(modules.values())} passed in ", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert done.returncode == 0


def outcome(
    folder: Path, runner: str, modules: Iterable[str], path: Path | None = None, change: tuple[str, str] = (MARK, MARK)
) -> subprocess.CompletedProcess[str]:
    """Run the page's modules; `change`: a text in the files, and its replacement."""
    mark, settings = RUNNERS[runner]
    for name, text in files().items():
        assert text.count(MARK) == ("async def test_" in text), (
            f"{name} has the mark of a runner and needs none, or none"
        )
        (folder / name).write_text(text.replace(MARK, mark).replace(*change))
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "aiokprod.testing.plugin", "-p", "anyio.pytest_plugin"]
    # Only what the page names is loaded: the same with aiokprod installed and without.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": PACKAGES}
    if path is not None:
        command += ["-p", "pytest_asyncio.plugin"]
        environment["PYTHONPATH"] += f"{os.pathsep}{path}"
    return subprocess.run(
        [*command, *modules],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_every_program_of_the_page_is_a_file_that_is_run() -> None:
    assert PAGE.read_text().count("```python\n") == len(files())
    tests = {name for name in files() if name.startswith("test_")}
    assert tests == set(MODULES) | set(MODULES_ON_KAFKA)
    for name, count in (MODULES | MODULES_ON_KAFKA).items():
        assert len(re.findall(r"^(?:async )?def test_", files()[name], re.MULTILINE)) == count, name


def test_each_application_is_tested_with_each_fixture() -> None:
    for application in ("shop", "kiosk"):
        text = files()[f"test_{application}.py"] + files()[f"test_{application}{ON_KAFKA}"]
        for fixture in ("memory_kafka", "mock_kafka", "kafka_cluster"):
            assert f"({fixture}: " in text, f"{application} has no test with {fixture}"


@pytest.mark.slow
def test_the_page_under_anyio(tmp_path: Path) -> None:
    run(tmp_path, "anyio", MODULES)


def test_a_seed_that_fails_is_reported_as_the_page_shows_it(tmp_path: Path) -> None:
    made = "Producer(mock_kafka.bootstrap_servers"
    broken = (f"{made})", f"{made}, enable_idempotence=False)")
    assert f"`{broken[1]}`" in PAGE.read_text()
    (report,) = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    done = outcome(tmp_path, "anyio", ["test_shop_seeds.py"], change=broken)
    assert done.returncode == 1
    assert shapes(report) <= shapes(done.stdout), done.stdout


def shapes(report: str) -> set[str]:
    """Return the lines of a report; which seed it is, and its story, change with every change of the code."""
    stories = re.sub(r"^E +\d+\.\d{4} s  \w.*$", "E a fault", report, flags=re.MULTILINE)
    return {re.sub(r"\d+", "N", line).rstrip() for line in stories.splitlines()}


@pytest.mark.slow
@pytest.mark.real
def test_the_page_under_anyio_on_real_brokers(tmp_path: Path) -> None:
    run(tmp_path, "anyio", MODULES_ON_KAFKA)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["pytest-asyncio strict", "pytest-asyncio auto"])
def test_the_page_under_pytest_asyncio(tmp_path: Path, runner: str, pytest_asyncio: Path) -> None:
    run(tmp_path, runner, MODULES, pytest_asyncio)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("runner", ["pytest-asyncio strict", "pytest-asyncio auto"])
def test_the_page_under_pytest_asyncio_on_real_brokers(tmp_path: Path, runner: str, pytest_asyncio: Path) -> None:
    run(tmp_path, runner, MODULES_ON_KAFKA, pytest_asyncio)
