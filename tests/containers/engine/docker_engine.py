"""A Docker engine: the one that answers, or one that is started here with its state in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from this_machine import NotHere, has, install, is_root, lacking, says, tail, text_of, where_is

ANSWERS_WITHIN_S = 60.0
ENDS_WITHIN_S = 30.0
PACKAGES = {"dockerd": "docker.io", "iptables": "iptables", "busybox": "busybox-static"}
"""The program of each Debian package; busybox is what the image is made with."""


class Step(Enum):
    """The step that is left until an engine answers."""

    NOTHING = "an engine answers"
    INSTALL = "packages are missing"
    START = "there is one, and it does not run"


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of this machine before anything is done.

    Args:
        answers: an engine answers.
        host: the variable DOCKER_HOST; empty if it is not set.
        is_root: packages may be installed, and an engine started.
        has_apt: packages can be installed.
        missing: Debian packages that an engine of our own needs.
    """

    answers: bool
    host: str
    is_root: bool
    has_apt: bool
    missing: tuple[str, ...]


def step_for(seen: Seen) -> Step:
    """Return what to do.

    Raises:
        NotHere: there cannot be an engine.
    """
    if seen.answers:
        return Step.NOTHING
    if seen.host:
        raise NotHere(f"no Docker engine answers at DOCKER_HOST={seen.host}, and another one would not be used")
    if not seen.is_root:
        raise NotHere("no Docker engine answers, and only root can start one")
    if not seen.missing:
        return Step.START
    if not seen.has_apt:
        raise NotHere(
            f"no Docker engine answers, and without apt-get there is no way to install {' '.join(seen.missing)}"
        )
    return Step.INSTALL


def answers() -> bool:
    """Return whether an engine answers the client of this machine."""
    return says(["docker", "version", "--format", "{{.Server.Version}}"]) is not None


def look() -> Seen:
    """Look at this machine."""
    return Seen(answers(), os.environ.get("DOCKER_HOST", ""), is_root(), has("apt-get"), tuple(lacking(PACKAGES)))


def state_folder() -> Path:
    """Return the folder of the engine that is started here."""
    return Path(tempfile.gettempdir()) / "aiokprod-docker-engine"


class OwnEngine:
    """The engine that is started here.

    Invariant: only root can write to its folder, which it makes itself: others may write beside it.

    Args:
        folder: for the process id, the log, and all that the engine stores.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid_file = folder / "pid"
        self._log = folder / "log"

    @property
    def pid(self) -> int | None:
        """The process id of the engine; None if it does not run."""
        text = text_of(self._pid_file).strip()
        return int(text) if text.isdigit() and self._is_it(int(text)) else None

    def _is_it(self, pid: int) -> bool:
        """Return whether this process is the engine: it may have ended, and its number may be another one's by now."""
        return f"--pidfile={self._pid_file}" in text_of(Path("/proc", str(pid), "cmdline")).split("\0")

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            NotHere: it ended, or did not answer in time; its log is in the error.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        owner = self._folder.lstat()
        if self._folder.is_symlink() or owner.st_uid != os.geteuid() or owner.st_mode & 0o022:
            raise NotHere(f"{self._folder} was not made by this user: remove it")
        self._pid_file.unlink(missing_ok=True)
        command = [
            where_is("dockerd") or "dockerd",
            f"--data-root={self._folder / 'data'}",
            f"--exec-root={self._folder / 'run'}",
            f"--pidfile={self._pid_file}",
            "--host=unix:///var/run/docker.sock",
        ]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        until = time.monotonic() + ANSWERS_WITHIN_S
        while not answers():
            if (status := process.poll()) is not None:
                raise NotHere(f"the Docker engine ended with status {status}", tail(text_of(self._log)))
            if time.monotonic() > until:
                process.terminate()
                process.wait(ENDS_WITHIN_S)
                raise NotHere(f"the Docker engine did not answer in {ANSWERS_WITHIN_S:.0f} s", tail(text_of(self._log)))
            time.sleep(0.25)

    def stop(self) -> bool:
        """Stop it, if it runs; return whether it ran.

        Raises:
            TimeoutError: it did not end.
        """
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            until = time.monotonic() + ENDS_WITHIN_S
            while self._is_it(pid):  # its file goes before it ends
                if time.monotonic() > until:
                    raise TimeoutError(f"the Docker engine, process {pid}, did not end in {ENDS_WITHIN_S:.0f} s")
                time.sleep(0.1)
        return pid is not None

    def remove(self) -> None:
        """Remove what it stored."""
        shutil.rmtree(self._folder, ignore_errors=True)


def up() -> str:
    """Let an engine answer; return what was done.

    Raises:
        NotHere: there cannot be one.
    """
    if step_for(look()) is Step.INSTALL:
        install(lacking(PACKAGES))
        if not has("docker"):
            install(["docker-cli"])  # a package of its own since Debian 13
    # A package can start its engine by itself.
    if step_for(look()) is Step.NOTHING:
        return "a Docker engine answers"
    OwnEngine(state_folder()).start()
    return f"started a Docker engine, with its state in {state_folder()}"


def down() -> str:
    """Stop the engine that `up` has started; return what was done."""
    own = OwnEngine(state_folder())
    did_run = own.stop()
    own.remove()
    return "stopped the Docker engine" if did_run else "no Docker engine was started here"
