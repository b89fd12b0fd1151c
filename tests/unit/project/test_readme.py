"""README.md is what a stranger does first: its program is run as it stands, and what it says of installing is true."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import aiokprod

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "CHANGELOG.md")
LIMIT_S = 120.0


def program() -> str:
    """Return the first block of Python."""
    (first, *_) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return str(first)


def command() -> str:
    """Return the line beside the program that runs it with a cluster."""
    (line,) = re.findall(r"^(aiokprod cluster .* -- python \S+)$", README, re.MULTILINE)
    return str(line)


def test_the_program_is_six_lines_and_compiles_as_it_is_pasted() -> None:
    assert ast.parse(program())
    assert len([line for line in program().splitlines() if line.strip()]) == 6


def test_the_program_runs_with_the_command_beside_it_and_prints_where_its_record_is(tmp_path: Path) -> None:
    before, _, name = command().rpartition(" -- python ")
    assert program().count("localhost:9092") == 1  # the port where `aiokprod cluster` listens
    (tmp_path / name).write_text(program())
    _, *options = before.split()
    line = [sys.executable, "-m", "aiokprod", *options, "--brokers", "1", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(aiokprod.__file__).parents[1])}
    done = subprocess.run(
        [*line, "--", sys.executable, name],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"RecordMetadata\(topic='orders', partition=0, offset=0, .*\)\n", done.stdout), done.stdout


def test_where_the_port_is_taken_the_page_has_the_command_with_another_one() -> None:
    other = command().replace("aiokprod cluster ", "aiokprod cluster --port 0 ")
    for name in ("README.md", "docs/index.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert f"If port 9092 is taken, one line says so: write `{other}`" in page.replace("\n", " "), name
        assert program() in page, name


def test_the_two_commands_are_one_line_each() -> None:
    for title in ("Run it", "Test it"):
        section = README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        _, block, _ = section.split("```")
        assert block.startswith("sh\n") and block.count("\n") == 2, block


def test_pages_install_from_a_checkout_and_the_readme_alone_says_how_it_will_be() -> None:
    of_an_index = re.compile(r"pip install ['\"]?aiokprod")
    assert [page.name for page in PAGES if of_an_index.search(page.read_text(encoding="utf-8"))] == []
    assert len(of_an_index.findall(README)) == 1
    assert "on no package index yet" in README


def test_the_first_screen_has_an_install_line_for_a_checkout() -> None:
    first_screen = README.partition("\n| `await producer.send(...)` | means |")[0]
    (line,) = re.findall(r"^python3 -m venv .*$", first_screen, re.MULTILINE)
    assert line.endswith('pip install -q -e ".[all]"')
    assert first_screen.index(line) < first_screen.index(command())


def test_an_install_in_a_checkout_is_editable() -> None:
    # A copy would replace an editable install, and a program in the checkout's folder would import its sources instead.
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    installs = {page: re.findall(r"pip install [^\n`]*", page.read_text(encoding="utf-8")) for page in pages}
    of_a_checkout = re.compile(r" ['\"]?\.{1,2}(?:/aiokprod)?(?:[\['\"\s]|$)")
    found = [(page.name, line) for page, lines in installs.items() for line in lines if of_a_checkout.search(line)]
    assert len(found) >= 15
    assert [each for each in found if " -e " not in each[1]] == []


def test_every_extra_that_a_page_installs_is_one_of_the_package() -> None:
    toml = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (section,) = re.findall(r"^\[project\.optional-dependencies\]\n(.*?)^\[", toml, re.DOTALL | re.MULTILINE)
    extras = set(re.findall(r"^([\w-]+) = ", section, re.MULTILINE))
    named = {
        extra
        for text in (README, *(page.read_text(encoding="utf-8") for page in PAGES))
        for group in re.findall(r"pip install (?:-\w )?['\"]\.\[([\w,-]+)\]", text)
        for extra in group.split(",")
    }
    assert {"all", "columns", "audit", "spark", "cli"} <= named <= extras


def test_the_readme_names_every_extra_and_says_which_are_not_in_all() -> None:
    toml = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = toml["project"]["optional-dependencies"]
    (sentence,) = re.findall(
        r"choose among the extras (.*?) \(`all` includes all but the last three\)", README, re.DOTALL
    )
    named = re.findall(r"`([\w-]+)`", sentence)
    assert set(named) == set(extras) - {"all"} and len(named) == len(set(named))
    assert extras["all"] == [f"aiokprod[{','.join(named[:-3])}]"]


def test_where_a_page_installs_a_dependency_group_it_upgrades_pip_first() -> None:
    # The pip of a fresh environment of Python 3.11 (23.2) knows no `--group`.
    found = 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for paragraph in page.read_text(encoding="utf-8").split("\n\n"):
            for match in re.finditer(r"(\S*pip) install [^\n`&]*--group ", paragraph):
                found += 1
                assert re.search(rf"{re.escape(match[1])} install (-q )?-U pip\b", paragraph[: match.start()]), (
                    f"{page.name}: {match[0]}"
                )
    assert found >= 3
