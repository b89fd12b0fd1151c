"""A page as Chromium shows it, without a screen: its text, and a picture of it.

Without Chromium the test is left out, or fails if AIOKPROD_REQUIRE_BROWSER is set, as in .ci/run.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from headless_browser import executable

SIZE = (1100, 2400)


@dataclass(frozen=True)
class Shown:
    """The looks of a page.

    Args:
        text: of the page, behind its layout.
        plots: number of SVG pictures in it.
        drawn: the part of its points that is not white.
        coloured: number of its points that are neither white nor grey, below the title.
    """

    text: str
    plots: int
    drawn: float
    coloured: int


def page_in_browser(page: Path, folder: Path) -> Shown:
    """Open a page, and look at it."""
    browser = executable()
    if browser is None:
        pytest.skip("no Chromium: apt-get install chromium; AIOKPROD_REQUIRE_BROWSER=1 makes this an error")
    picture = folder / "page.png"
    dom = _run(browser, folder, "--dump-dom", page)
    _run(browser, folder, f"--screenshot={picture}", page)
    from matplotlib import image

    points = image.imread(picture)[..., :3]
    assert points.shape[:2] == (SIZE[1], SIZE[0])
    below = points[200:]
    spread = below.max(axis=2) - below.min(axis=2)
    return Shown(
        text=dom,
        plots=dom.count("<svg"),
        drawn=float((points < 0.98).any(axis=2).mean()),
        coloured=int((spread > 0.2).sum()),
    )


def _run(browser: str, folder: Path, action: str, page: Path) -> str:
    command = [
        browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={SIZE[0]},{SIZE[1]}", action, page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
