"""Programs and packages of this machine: what they say, and what Debian's apt can add."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


class NotHere(Exception):
    """Something that this machine does not have and cannot get; its text is one line, and the rest is the tail of a log.

    Args:
        reason: one line.
        log: lines that explain it, or nothing.
    """

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.log = log


def where_is(program: str) -> str | None:
    """Return the path of a program; None if there is none. Root's own folders count, also where PATH does not have them."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def has(program: str) -> bool:
    """Return whether there is a program of this name."""
    return where_is(program) is not None


def is_root() -> bool:
    """Return whether this process may install packages and start an engine."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def says(command: Sequence[str], timeout_s: float = 60.0) -> str | None:
    """Return the standard output of a program; None if it is missing, fails, or takes longer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def tail(text: str, lines: int = 20) -> str:
    """Return the last lines of a text."""
    return "\n".join(text.splitlines()[-lines:])


def lacking(packages: Mapping[str, str]) -> list[str]:
    """Return the Debian packages to install, from the program that each of them brings."""
    return sorted({package for program, package in packages.items() if not has(program)})


def install(packages: Iterable[str]) -> None:
    """Install Debian packages; the list of packages is fetched if the one that is here does not have them.

    Raises:
        NotHere: apt could not.
    """
    wanted = list(packages)
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *wanted]
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    log = ""
    for attempt in (command, ["apt-get", "update", "-q"], command):
        done = subprocess.run(
            attempt, env=quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        log = done.stdout
        if attempt is command and done.returncode == 0:
            return
    raise NotHere(f"apt could not install {' '.join(wanted)}", tail(log))


def text_of(path: Path) -> str:
    """Return the text of a file; nothing if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
