"""`python tests/soak --minutes 5 --seed 1 --report DIR`: one soak; the exit status is the verdict."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from plan import Calm
from report import write_report
from run import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description="aiokprod on a real three-broker Kafka, with faults")
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults; from 15 on, the long form (default: 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the plan and of the records (default: 1)")
    parser.add_argument("--rate", type=float, default=100.0, help="records per second of each of the six workloads")
    parser.add_argument(
        "--options", default="{}", help="""as JSON, by workload: {"five": {"acks": 0}}, to plant a defect"""
    )
    parser.add_argument("--calm", action="store_true", help="no faults: with a high --rate, what this machine can do")
    parser.add_argument("--report", type=Path, help="the directory for report.md, report.json and timeline.svg")
    given = parser.parse_args()
    replay = f"nox -s soak -- --minutes {given.minutes:g} --seed {given.seed} --rate {given.rate:g}"
    replay += " --calm" if given.calm else ""
    began = time.monotonic()
    print(replay)
    soak = Soak(
        minutes=given.minutes,
        seed=given.seed,
        rate=given.rate,
        options=json.loads(given.options),
        plan=Calm() if given.calm else None,
    )
    evidence, verdict = soak.run(None if given.report is None else given.report / "books")
    for name, value in verdict.figures.items():
        print(f"  {name}: {value}")
    for complaint in verdict.complaints[:50]:
        print(f"  WRONG {complaint}")
    if given.report is not None:
        print(f"report: {write_report(given.report, evidence, verdict, f'Soak, seed {given.seed}', replay)}")
    print(
        f"verdict: {'good' if verdict.is_good else 'BAD ' + str(dict(verdict.counts()))}; {time.monotonic() - began:.0f} s"
    )
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main())
