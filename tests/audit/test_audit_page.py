"""The audit's page, as a browser shows it."""

from __future__ import annotations

from pathlib import Path

from browser import page_in_browser

from aiokprod.audit.page import page
from aiokprod.audit.verdict import Verdict


def test_a_browser_shows_the_verdict_and_draws_the_plots(tmp_path: Path) -> None:
    timeline = {"orders": {1_700_000_000 + second: 50 + second for second in range(60)}}
    verdict = Verdict(claims=100, log_records=100, late=0, timeline=timeline)
    (tmp_path / "index.html").write_text(page(verdict))
    shown = page_in_browser(tmp_path / "index.html", tmp_path)
    assert verdict.line in shown.text
    assert (shown.plots, shown.coloured > 500) == (1, True)
    (tmp_path / "index.html").write_text(page(Verdict(claims=100, log_records=100, late=0)))
    assert (
        page_in_browser(tmp_path / "index.html", tmp_path).coloured == 0
    )  # so points of colour are those of the plots
