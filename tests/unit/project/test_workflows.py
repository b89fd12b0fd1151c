"""The workflows of .github: what their linters do not know. They have not been run yet, as docs/releasing.md says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OURS = re.compile(r"\./\.github/workflows/(\w+\.yml)")
SESSION = re.compile(r"\bnox -s (\w+)")
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


def read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job.get("steps", [])]


def test_there_is_one_for_each_purpose() -> None:
    assert [path.stem for path in WORKFLOWS] == ["gate", "nightly", "release", "wheels"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_nothing_and_each_job_what_it_needs(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {}
    assert "concurrency" in workflow
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        assert "uses" in job or job["timeout-minutes"] <= 360, f"{name} needs a limit of its own"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_an_action_is_pinned_by_its_commit_and_one_action_by_one_commit(path: Path) -> None:
    used = [step["uses"] for step in steps_of(path) if "uses" in step]
    assert [action for action in used if not PINNED.fullmatch(action)] == []
    everywhere = {step["uses"] for other in WORKFLOWS for step in steps_of(other) if "uses" in step}
    names = [action.partition("@")[0] for action in everywhere]
    assert sorted(set(names)) == sorted(names)


def test_a_workflow_that_is_called_exists_and_can_be_called() -> None:
    called = [job["uses"] for path in WORKFLOWS for job in read(path)["jobs"].values() if "uses" in job]
    names = [match.group(1) for match in map(OURS.fullmatch, called) if match]
    assert len(names) == len(called) == 2
    for name in names:
        events = read(ROOT / ".github" / "workflows" / name)[True]  # YAML 1.1 takes `on` for a truth value
        assert "workflow_call" in events


def test_nothing_is_published_before_the_gate_and_the_wheels_have_passed() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]

    def before(name: str) -> set[str]:
        needs = jobs[name].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*(before(each) for each in direct))

    assert before("publish") == {"version", "gate", "wheels", "attest"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    may_sign = {name for name, job in jobs.items() if "id-token" in job["permissions"]}
    assert may_sign == {"attest", "publish"}


def test_every_session_that_a_workflow_runs_exists() -> None:
    named = {name for path in WORKFLOWS for name in SESSION.findall(path.read_text(encoding="utf-8"))}
    defined = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE))
    assert named and named <= defined


def test_a_wheel_is_built_for_every_python_that_the_package_names() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    named = re.findall(r"Python :: 3\.(\d+)", " ".join(PROJECT["project"]["classifiers"]))
    built = settings["build"].split()
    assert built == [*(f"cp3{minor}-*" for minor in named), f"cp3{named[-1]}t-*"]
    groups = set(settings["test-groups"]).union(*(each["test-groups"] for each in settings["overrides"]))
    assert groups <= set(PROJECT["dependency-groups"])


def test_what_checks_the_workflows_is_an_exact_release_and_part_of_lint() -> None:
    lint = PROJECT["dependency-groups"]["lint"]
    for tool in ("zizmor", "check-jsonschema"):
        assert any(re.fullmatch(rf"{tool}==[\d.]+", each) for each in lint), tool
        assert f'session.run("{tool}"' in (ROOT / "noxfile.py").read_text(encoding="utf-8")
