"""Things that the steps need: virtual environments, programs of the system, the README's own lines, Pythons, wheels, Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gate.steps import LOGS, ROOT, StepFailedError, call, status_of

LATER_PYTHONS: Final = ("3.12", "3.13", "3.14")
REQUIRED: Final = {"AIOKPROD_REQUIRE_BROWSER": "1", "AIOKPROD_REQUIRE_POSTGRES": "1", "AIOKPROD_REQUIRE_SHELLS": "1"}
"""With these the tests of a browser, a database and shells fail if they are not there."""

WITHOUT_DOCKER: Final = {"DOCKER_HOST": "unix:///var/run/no-engine.sock"}
"""The README's lines run as on most machines, which have no engine; container tests have a step of their own."""

LATE_SOCKETS: Final = ("-W", "default::ResourceWarning", "-W", "default::pytest.PytestUnraisableExceptionWarning")
"""PySpark 4.1 closes its own sockets late."""


def line_of(section: str, readme: Path = ROOT / "README.md") -> str:
    """Return the one line in the fenced block of a section of the README.

    Raises:
        StepFailedError: there is no such section, or it has no such line.
    """
    is_inside = is_fenced = False
    for line in readme.read_text().splitlines():
        if line.startswith("## "):
            is_inside = line == f"## {section}"
        elif is_inside and line.startswith("```"):
            is_fenced = not is_fenced
        elif is_inside and is_fenced and line.strip():
            return line
    raise StepFailedError(f"README.md has no line to run in its section {section!r}")


def environment(venv: Path, *install: str, python: str = "python3") -> Path:
    """Make a virtual environment from nothing, and return its interpreter."""
    call(python, "-m", "venv", "--clear", venv)
    found = venv / "bin" / "python"
    call(found, "-m", "pip", "install", "-q", "-U", "pip")
    if install:
        call(found, "-m", "pip", "install", "-q", *install)
    return found


def programs_of_the_system() -> None:
    """Install the browser, the database, the shells and valgrind, where they are missing."""
    probes: dict[str, Callable[[], bool]] = {
        "chromium": lambda: shutil.which("chromium") is not None,
        "postgresql": lambda: any(Path("/usr/lib/postgresql").glob("*/bin/postgres")),
        "zsh": lambda: shutil.which("zsh") is not None,
        "fish": lambda: shutil.which("fish") is not None,
        "valgrind": lambda: shutil.which("valgrind") is not None,
    }
    missing = [name for name, is_there in probes.items() if not is_there()]
    if not missing:
        return
    log = LOGS / "apt.log"
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install = [*as_root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    if status_of(*install, env=env, log=log):
        call(*as_root, "apt-get", "update", "-qq", log=log)
        call(*install, env=env, log=log)


@dataclass(frozen=True)
class Python:
    """An installed Python.

    Args:
        version: such as 3.12.
        command: what starts it.
    """

    version: str
    command: str


def pythons() -> list[Python]:
    """Return this Python and the installed later ones, oldest first: on the path, or kept by pyenv."""
    found = [Python(f"{sys.version_info.major}.{sys.version_info.minor}", sys.executable)]
    for version in LATER_PYTHONS:
        command = f"python{version}" if answers(f"python{version}") else of_pyenv(version)
        if command is not None and version != found[0].version:
            found.append(Python(version, command))
    return found


def answers(command: str) -> bool:
    """Return whether a Python starts: a shim of pyenv is on the path and does not."""
    try:
        return subprocess.run([command, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def of_pyenv(version: str) -> str | None:
    """Return the newest Python of this version that pyenv keeps."""
    try:
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return None
    kept = sorted(Path(root, "versions").glob(f"{version}.*"), key=lambda path: [int(n) for n in path.name.split(".")])
    return str(kept[-1] / "bin" / "python3") if root and kept else None


@dataclass(frozen=True)
class Wheel:
    """A compiled wheel, and the environment in which it and the tests' packages are installed."""

    file: Path
    python: Path

    def env(self) -> dict[str, str]:
        """Return what its tests need: they fail unless the compiled form is in use, and build no other wheel."""
        return {"AIOKPROD_EXPECT_COMPILED": "1", "AIOKPROD_TEST_WHEEL": str(self.file)}


def compiled_wheel(python: Python, log: Path | None = None) -> Wheel:
    """Build the compiled wheel for a Python from the source distribution, repair it for other systems, install it."""
    folder = ROOT / "build" / "wheels" / python.version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = log or LOGS / f"wheel-{python.version}.log"
    found = environment(ROOT / f".venv-compiled-{python.version}", "--group", "wheel", python=python.command)
    call(found, "-m", "build", "--sdist", "--outdir", folder, log=log)
    (source,) = folder.glob("*.tar.gz")
    call(found, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, env={"AIOKPROD_COMPILE": "1"}, log=log)
    (wheel,) = folder.glob("*.whl")
    path = {"PATH": f"{found.parent}{os.pathsep}{os.environ['PATH']}"}  # auditwheel runs patchelf
    call(found.parent / "auditwheel", "repair", "-w", folder / "repaired", wheel, env=path, log=log)
    (repaired,) = (folder / "repaired").glob("*.whl")
    call(found, "-m", "pip", "install", "-q", repaired, "--group", "test", log=log)
    return Wheel(wheel, found)


def on_pyspark(version: str, wheel: Wheel, python: Python) -> Path:
    """Make an environment with this wheel and an older PySpark, and return its interpreter."""
    (repaired,) = (wheel.file.parent / "repaired").glob("*.whl")
    venv = ROOT / f".venv-spark-{version}"
    return environment(venv, str(repaired), "--group", "test", f"pyspark[connect]=={version}.*", python=python.command)
