"""The build backend, but for the build itself (tests/packaging): what it corrects in mypyc, and what it builds with."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def backend() -> ModuleType:
    spec = importlib.util.spec_from_file_location("aiokprod_build_backend", ROOT / ".build" / "backend.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_runtime_of_the_mypyc_that_is_installed_is_corrected_in_one_place(backend: ModuleType) -> None:
    from mypyc.build import include_dir

    runtime = Path(include_dir(), "misc_ops.c").read_text(encoding="utf-8")
    corrected = backend.corrected(runtime)
    changed = [
        (old.strip(), new.strip())
        for old, new in zip(runtime.splitlines(), corrected.splitlines(), strict=True)
        if old != new
    ]
    assert changed == [(f"res = {backend.THREE_ARGUMENTS};", f"res = {backend.ONE_ARGUMENT};")]


@pytest.mark.parametrize("count", [0, 2])
def test_a_runtime_that_is_another_one_stops_the_build(backend: ModuleType, count: int) -> None:
    with pytest.raises(RuntimeError, match=rf"has {count} times .* build with mypy>=.*AIOKPROD_COMPILE"):
        backend.corrected(f"res = {backend.THREE_ARGUMENTS};\n" * count)


def test_every_module_is_compiled_but_those_named(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = {path.as_posix() for pattern in backend.COMPILED for path in Path().glob(pattern)}
    compiled = {Path(path).as_posix() for path in backend.sources()}
    assert {path for path in found - compiled if not path.endswith("/__init__.py")} == set(backend.INTERPRETED)


@pytest.mark.parametrize("table", ["COMPILED", "INTERPRETED"])
@pytest.mark.parametrize("entry", ["aiokprod/pipeline/renamed.py", "serializing.py"])
def test_an_entry_that_matches_no_file_stops_the_build(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, table: str, entry: str
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(backend, table, (*getattr(backend, table), entry))
    with pytest.raises(
        RuntimeError, match=rf"{table} in .build/backend.py has .*{re.escape(entry)}.* name the new path"
    ):
        backend.sources()


def test_what_builds_is_bounded_above(backend: ModuleType) -> None:
    for text in (*PROJECT["build-system"]["requires"], *backend.MYPYC):
        assert {each.operator for each in Requirement(text).specifier} >= {">=", "<"}, text


def test_the_mypy_of_the_tests_is_one_that_builds(backend: ModuleType) -> None:
    assert Requirement(backend.MYPYC[0]).specifier.contains(metadata.version("mypy"))


def test_the_metadata_name_the_author_and_under_what_licence() -> None:
    project = PROJECT["project"]
    assert project["authors"] and project["license"] == "Apache-2.0"
    assert re.fullmatch(r"[\w -]+(, [\w -]+)*", ", ".join(project["keywords"]))


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
def test_a_build_without_a_compiler_ends_before_it_begins(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hook: str
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AIOKPROD_COMPILE", "1")
    monkeypatch.setenv("CC", "no-such-compiler -O3")
    monkeypatch.setattr(backend.sysconfig, "get_path", lambda _name: str(tmp_path))
    with pytest.raises(
        SystemExit, match=r"a C compiler \('no-such-compiler -O3'\) and the headers .*gcc python3-dev.*pure form"
    ):
        getattr(backend, hook)()
    (tmp_path / "Python.h").touch()
    monkeypatch.setenv("CC", sys.executable)
    backend.check_compiler()
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("AIOKPROD_COMPILE", "0")
    monkeypatch.setattr(backend.build_meta._BuildMetaBackend, hook, lambda *_: [])
    assert getattr(backend, hook)() == []


@pytest.mark.parametrize("command", [" ", '"', "'cc"])
def test_a_cc_that_names_no_program_is_told_like_a_compiler_that_is_not_there(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("CC", command)
    with pytest.raises(SystemExit, match="needs a C compiler") as told:
        backend.check_compiler()
    assert f"({command!r})" in str(told.value)


# ---------------------------------------------------------------- the time of the sources


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty folder, in which the build runs, without SOURCE_DATE_EPOCH."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commit(folder: Path, date: int) -> None:
    environment = {"GIT_COMMITTER_DATE": f"{date} +0000", "PATH": os.environ["PATH"], "HOME": str(folder)}
    us = ("-c", "user.name=us", "-c", "user.email=us@example.org")
    for command in (["init", "-q"], [*us, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *command], cwd=folder, env=environment, check=True)


def test_the_date_is_that_of_the_last_commit(backend: ModuleType, tree: Path) -> None:
    commit(tree, 1_600_000_000)
    assert backend.source_date() == 1_600_000_000


def test_the_date_is_the_one_that_a_source_distribution_carries(backend: ModuleType, tree: Path) -> None:
    commit(tree, 1_600_000_000)  # of a repository into which it was unpacked
    (tree / ".build").mkdir()
    (tree / ".build" / "source_date").write_text("1500000000\n")
    assert backend.source_date() == 1_500_000_000


def test_a_repository_around_an_unpacked_folder_is_not_asked(
    backend: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tree, 1_600_000_000)
    (tree / "inner").mkdir()
    monkeypatch.chdir(tree / "inner")
    assert backend.source_date() == backend.EARLIEST


def test_without_git_the_date_is_a_fixed_one(backend: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / ".git").mkdir()
    assert backend.source_date() == backend.EARLIEST, "no commit"
    monkeypatch.setenv("PATH", str(tree))
    assert backend.source_date() == backend.EARLIEST, "no git"


def test_the_variable_comes_first_and_no_date_is_before_zip_files_begin(
    backend: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tree, 1_600_000_000)
    for named, date in (("1700000000", 1_700_000_000), ("0", backend.EARLIEST), ("", 1_600_000_000)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", named)
        assert backend.source_date() == date


@pytest.mark.parametrize("named", ["yesterday", "1.5", "-1", "²"])
def test_a_variable_that_is_no_number_stops_the_build(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", named)
    with pytest.raises(SystemExit, match="give the seconds since 1970, as a whole number"):
        backend.source_date()


def test_the_readme_of_an_index_has_no_link_that_is_dead_there(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = backend.readme_of_an_index()
    assert "](docs/" in readme
    assert [link for link in re.findall(r"\]\(([^)]*)\)", shown) if not link.startswith("https://")] == []
    assert "The pages are in `docs` of the source distribution:" in shown
    assert shown.count("\n") == readme.count("\n")


@pytest.mark.parametrize("has_git", [True, False])
def test_a_source_distribution_has_the_pages_and_the_tests(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_git: bool
) -> None:
    for name in ("docs/sending.md", "tests/unit/test_a.py", "tests/__pycache__/a.pyc", "tests/.cache/a", "noxfile.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    expected = ["docs/sending.md", "noxfile.py", "tests/unit/test_a.py"]
    monkeypatch.chdir(tmp_path)
    if has_git:
        subprocess.run(["git", "init", "-q"], check=True)
        subprocess.run(["git", "add", *expected], check=True)
        (tmp_path / "docs" / "draft.md").write_text("not tracked")
    assert backend.beside_the_package() == expected


def test_the_metadata_have_a_status_and_keywords_and_no_invented_address() -> None:
    project = PROJECT["project"]
    (status,) = [each for each in project["classifiers"] if each.startswith("Development Status :: ")]
    assert status == "Development Status :: 4 - Beta"
    assert {"kafka", "asyncio", "exactly-once"} <= set(project["keywords"])
    assert project["license"] == "Apache-2.0"
    assert "urls" not in project, (
        "is there a public address now? Then mend the links of the README, too: docs/releasing.md"
    )


def test_the_pages_agree_about_the_newest_python() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("reference/versions.md", "releasing.md")]
    for page in pages:
        assert re.search(r"3\.11 to 3\.13\b", page)
        assert not re.search(r"3\.11 to 3\.14\b", page)
