"""`aiokprod demo --spark`, as a user starts it, and its page, as a browser shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from browser import page_in_browser

import aiokprod


@pytest.mark.slow
@pytest.mark.real
def test_the_demo_ends_clean_with_pictures(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "aiokprod",
        "demo",
        "--spark",
        "--records",
        "30000",
        "--report",
        str(tmp_path / "report"),
    ]
    path = str(Path(aiokprod.__file__).parents[1])
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "lost 0, duplicate 0, phantom 0, reordered 0" in done.stdout
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert (summary["verdict"], summary["claims"]) == ("clean", 30_000)
    assert "killed the driver of Spark (-9)" in done.stdout
    shown = page_in_browser(tmp_path / "report" / "index.html", tmp_path)
    assert "lost 0, duplicate 0" in shown.text
    assert shown.plots >= 1
    assert shown.drawn > 0.02  # of the page; one that did not load, or without its plots, is white
    assert shown.coloured > 500  # points of lines and bars
