"""A Python with the compiled form of aiokprod: a venv of its own in `build/bench`, made again when the sources change.

python bench/compiled.py        build it (a minute) and print its interpreter
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
VENV: Final = ROOT / "build" / "bench" / "compiled"
EXTRAS: Final = "lz4,zstd,snappy,uvloop,columns,otel"
PACKAGES: Final = ("fastapi>=0.115", "uvicorn>=0.30", "pytest>=8")  # what else the benchmarks import


def fingerprint() -> str:
    """Return a hash of everything the wheel is made of."""
    digest = sha256(sys.version.encode())
    for path in [ROOT / "pyproject.toml", *sorted(ROOT.glob(".build/*.py")), *sorted(ROOT.glob("aiokprod/**/*.py"))]:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


# Without bytecode on disk the pure form is compiled at every start, which pip does once.
NOT_PASSED_ON: Final = ("AIOKPROD_PURE", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


def compiled_python() -> Path:
    """Return the interpreter that has the compiled form; build and install it first if needed.

    Raises:
        SystemExit: the built wheel is not compiled.
    """
    python, stamp = VENV / "bin" / "python", VENV / "built-of"
    wanted = "\n".join([fingerprint(), EXTRAS, *PACKAGES])
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    print(f"building the compiled form in {VENV.relative_to(ROOT)}", file=sys.stderr)
    pip = [str(python), "-m", "pip", "install", "-q"]
    run([*pip, "-U", "pip"])
    run([*pip, f".[{EXTRAS}]", *PACKAGES], AIOKPROD_COMPILE="1")
    if not is_compiled(python):
        raise SystemExit("what AIOKPROD_COMPILE=1 built is not compiled")
    stamp.write_text(wanted)
    return python


def is_compiled(python: str | Path) -> bool:
    """Return whether the aiokprod that this interpreter finds is compiled."""
    asked = [str(python), "-c", "import aiokprod; print(aiokprod.compiled)"]
    return subprocess.run(asked, capture_output=True, text=True, cwd=VENV.parent, check=True).stdout.strip() == "True"


def environment_of(form: str) -> dict[str, str]:
    """Return the environment of a child that imports this form: the sources of this tree, or the installed package."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    return environment if form == "compiled" else environment | {"AIOKPROD_PURE": "1", "PYTHONPATH": str(ROOT)}


def run(command: list[str], **environment: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    subprocess.run(command, cwd=ROOT, env=clean | environment, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    print(compiled_python())
