"""The report of a soak: Markdown for people, JSON for figures that add up, SVG for the picture."""

from __future__ import annotations

import json
from pathlib import Path

from evidence import Evidence, Verdict
from picture import picture_of
from recovery import recoveries_of

SHOWN = 20  # complaints of one check


def write_report(folder: Path, evidence: Evidence, verdict: Verdict, title: str, replay: str) -> Path:
    """Write `report.md`, `report.json` and `timeline.svg`; returns the first."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "timeline.svg").write_text(picture_of(evidence), encoding="utf-8")
    found = {
        "title": title,
        "replay": replay,
        "good": verdict.is_good,
        "figures": verdict.figures,
        "complaints": [str(each) for each in verdict.complaints],
        "faults": [
            {
                "kind": injection.kind,
                "text": injection.text,
                "at_s": round(injection.began - evidence.began, 2),
                "healed_after_s": round(injection.healed - injection.began, 2),
                "whole_after_s": round(injection.settled - injection.began, 2),
                "met": injection.met,
                "failure": injection.failure,
            }
            for injection in evidence.injections
        ],
    }
    (folder / "report.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    path = folder / "report.md"
    path.write_text(markdown(evidence, verdict, title, replay), encoding="utf-8")
    return path


def markdown(evidence: Evidence, verdict: Verdict, title: str, replay: str) -> str:
    """Return verdict, figures and faults as a page."""
    lines = [f"# {title}", "", f"Verdict: **{'good' if verdict.is_good else 'BAD'}**. Again: `{replay}`", ""]
    counts = verdict.counts()
    for check in counts:
        lines.append(f"- {check}: {counts[check]}")
        lines += [f"  - {each.text}" for each in verdict.complaints if each.check == check][:SHOWN]
    lines += ["", "![timeline](timeline.svg)", "", "| figure | |", "|---|---|"]
    lines += [f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |"
              for name, value in verdict.figures.items()]  # fmt: skip
    lines += ["", "| kind | done | met | met nothing | failed itself |", "|---|---|---|---|---|"]
    for kind in sorted({injection.kind for injection in evidence.injections}):
        of = [injection for injection in evidence.injections if injection.kind == kind]
        lines.append(
            f"| {kind} | {len(of)} | {sum(each.met or 0 for each in of)} | {sum(each.met == 0 for each in of)} "
            f"| {sum(injection.failure is not None for injection in of)} |"
        )
    well_after = {id(injection): f"{seconds:.1f}" for injection, seconds in recoveries_of(evidence)}
    lines += [
        "",
        "| at, s | fault | healed after, s | whole after, s | then 90 % of the rate after, s |",
        "|---|---|---|---|---|",
    ]
    for injection in evidence.injections:
        text = injection.text + (f" (failed: {injection.failure.splitlines()[-1]})" if injection.failure else "")
        lines.append(
            f"| {injection.began - evidence.began:.1f} | {text.replace('|', '/')} | {injection.healed - injection.began:.1f} "
            f"| {injection.settled - injection.began:.1f} | {well_after.get(id(injection), '')} |"
        )
    return "\n".join([*lines, ""])
