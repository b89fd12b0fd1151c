"""Build the documentation site: `python docs/build.py [FOLDER]` (default: build/docs). A warning is an error.

`nox -s docs` calls it in an environment of its own. In an environment with the dependency group `docs` it takes half a minute.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent


def build(folder: Path) -> int:
    """Build the site into a folder, from the start; return the exit status of Sphinx."""
    options = ["-b", "html", "-q", "-E", "-a", "-W", "--keep-going", "-d", str(folder / ".doctrees")]
    return subprocess.run([sys.executable, "-m", "sphinx", *options, str(DOCS), str(folder)], check=False).returncode


if __name__ == "__main__":
    target = Path(sys.argv[1]) if sys.argv[1:] else DOCS.parent / "build" / "docs"
    if status := build(target):
        raise SystemExit(status)
    sys.stdout.write(f"open {target / 'index.html'}\n")
