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
        "deeds": [
            {
                "kind": deed.kind,
                "text": deed.text,
                "at_s": round(deed.began - evidence.began, 2),
                "healed_after_s": round(deed.healed - deed.began, 2),
                "whole_after_s": round(deed.settled - deed.began, 2),
                "met": deed.met,
                "failure": deed.failure,
            }
            for deed in evidence.deeds
        ],
    }
    (folder / "report.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    path = folder / "report.md"
    path.write_text(markdown(evidence, verdict, title, replay), encoding="utf-8")
    return path


def markdown(evidence: Evidence, verdict: Verdict, title: str, replay: str) -> str:
    """Verdict, figures, deeds."""
    lines = [f"# {title}", "", f"Verdict: **{'good' if verdict.is_good else 'BAD'}**. Again: `{replay}`", ""]
    counts = verdict.counts()
    for check in counts:
        lines.append(f"- {check}: {counts[check]}")
        lines += [f"  - {each.text}" for each in verdict.complaints if each.check == check][:SHOWN]
    lines += ["", "![timeline](timeline.svg)", "", "| figure | |", "|---|---|"]
    lines += [f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |"
              for name, value in verdict.figures.items()]  # fmt: skip
    lines += ["", "| kind | done | met | met nothing | failed itself |", "|---|---|---|---|---|"]
    for kind in sorted({deed.kind for deed in evidence.deeds}):
        of = [deed for deed in evidence.deeds if deed.kind == kind]
        lines.append(
            f"| {kind} | {len(of)} | {sum(deed.met or 0 for deed in of)} | {sum(deed.met == 0 for deed in of)} "
            f"| {sum(deed.failure is not None for deed in of)} |"
        )
    well_after = {id(deed): f"{seconds:.1f}" for deed, seconds in recoveries_of(evidence)}
    lines += [
        "",
        "| at, s | deed | healed after, s | whole after, s | then 90 % of the rate after, s |",
        "|---|---|---|---|---|",
    ]
    for deed in evidence.deeds:
        text = deed.text + (f" (failed: {deed.failure.splitlines()[-1]})" if deed.failure else "")
        lines.append(
            f"| {deed.began - evidence.began:.1f} | {text.replace('|', '/')} | {deed.healed - deed.began:.1f} "
            f"| {deed.settled - deed.began:.1f} | {well_after.get(id(deed), '')} |"
        )
    return "\n".join([*lines, ""])
