"""Build the documentation site: `python docs/build.py [FOLDER]` (default: build/docs). A warning is an error.

`python docs/build.py --links [FOLDER]` (default: build/links) follows every link that leads elsewhere, and prints what became
of each. This needs a network; the exit status is 1 if one is broken.

`nox -s docs` and `nox -s links` call it in an environment of their own. In an environment with the dependency group `docs` the
site takes half a minute.
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


def follow_links(folder: Path, source: Path = DOCS) -> int:
    """Follow the links of the pages in a folder; return the exit status of Sphinx, 1 if one is broken."""
    options = ["-b", "linkcheck", "-E", "-a", "-c", str(DOCS), "-d", str(folder / ".doctrees")]
    return subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(folder)], check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["--links"]:
        raise SystemExit(follow_links(Path(sys.argv[2]) if sys.argv[2:] else DOCS.parent / "build" / "links"))
    target = Path(sys.argv[1]) if sys.argv[1:] else DOCS.parent / "build" / "docs"
    if status := build(target):
        raise SystemExit(status)
    sys.stdout.write(f"open {target / 'index.html'}\n")
