"""The drop-in beside aiokafka, on one real broker: `python bench/drop_in.py`, a minute per round.

Measured are four ways to send, each with acks=all and idempotence on both sides: windows of sends whose results are awaited one
after the other, windows that are gathered, many concurrent `send_and_wait`, and one `send_and_wait` at a time. Each producer
takes a turn per round, in a process of its own; printed are the medians, and the ratios, which are computed round by round.

The drop-in runs as sources. `--compiled PYTHON` names an interpreter with the compiled form of aiokprod, for another column.
`--docs` writes the table into docs/how-to/aiokafka_drop_in.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brokers import CLIENT_CORE, started

AIOKAFKA, DROP_IN, COMPILED = "aiokafka", "drop-in", "drop-in, compiled"
VALUE = b"x" * 100
WINDOW = 5_000
CONCURRENT = 3_000
ALONE = 500
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "aiokafka_drop_in.md"
BEGIN = "<!-- figures: python bench/drop_in.py --docs -->"
END = "<!-- end of figures -->"
NAMES = {
    "awaited": f"windows of {WINDOW:,} sends, then awaited one after the other: processor time per record",
    "gathered": f"windows of {WINDOW:,} sends, then gathered: processor time per record",
    "concurrent": f"{CONCURRENT:,} concurrent `send_and_wait`: processor time per record",
    "rate": f"{CONCURRENT:,} concurrent `send_and_wait`: records per second",
    "alone": "one `send_and_wait` at a time: median latency",
}


# ---------------------------------------------------------------------- one turn, in a process of its own
def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def windows(producer: Any, topic: str, records: int, gathers: bool) -> float:
    """Send in windows; return the processor time per record, in microseconds."""
    began = cpu_s()
    for _ in range(records // WINDOW):
        sent = [await producer.send(topic, VALUE) for _ in range(WINDOW)]
        if gathers:
            await asyncio.gather(*sent)
        else:
            for each in sent:
                await each
    return 1e6 * (cpu_s() - began) / (records // WINDOW * WINDOW)


async def turn(client: str, servers: str, topic: str, records: int) -> dict[str, float]:
    """Return the figures of one client."""
    if client == AIOKAFKA:
        from aiokafka import AIOKafkaProducer
    else:
        from aiokprod import compiled
        from aiokprod.compat.aiokafka import AIOKafkaProducer

        assert compiled == (client == COMPILED)
    figures: dict[str, float] = {}
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True) as producer:
        await windows(producer, topic, WINDOW, True)  # not counted
        figures["awaited"] = await windows(producer, topic, records, False)
        figures["gathered"] = await windows(producer, topic, records, True)
        began, began_cpu = time.perf_counter(), cpu_s()
        await asyncio.gather(*[producer.send_and_wait(topic, VALUE) for _ in range(CONCURRENT)])
        figures["rate"] = CONCURRENT / (time.perf_counter() - began)
        figures["concurrent"] = 1e6 * (cpu_s() - began_cpu) / CONCURRENT
        latencies: list[float] = []
        for _ in range(ALONE):
            began = time.perf_counter()
            await producer.send_and_wait(topic, VALUE)
            latencies.append(time.perf_counter() - began)
        figures["alone"] = 1e3 * statistics.median(latencies)
    return figures


# ---------------------------------------------------------------------- the run
def child(python: str, client: str, servers: str, topic: str, records: int) -> dict[str, float]:
    command = [python, __file__, "--turn", client, servers, topic, str(records)]
    pinned = None if len(os.sched_getaffinity(0)) < 2 else lambda: os.sched_setaffinity(0, {CLIENT_CORE})
    run = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=pinned)
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


def ratio(name: str, client: str, rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    """Return how many times better the client is than aiokafka: the median over the rounds, the least and the most."""
    found = sorted(
        each[client][name] / each[AIOKAFKA][name] if name == "rate" else each[AIOKAFKA][name] / each[client][name]
        for each in rounds
    )
    return f"{statistics.median(found):.1f} ({found[0]:.1f} to {found[-1]:.1f})"


def table(rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    clients = list(rounds[0])
    heads = ["", *clients, *(f"{client}: better by" for client in clients[1:])]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, text in NAMES.items():
        unit, digits = {"rate": ("", 0), "alone": (" ms", 2)}.get(name, (" us", 1))
        medians = [statistics.median(each[client][name] for each in rounds) for client in clients]
        cells = [f"{median:,.{digits}f}{unit}" for median in medians]
        cells += [ratio(name, client, rounds) for client in clients[1:]]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(text: str) -> None:
    """Put the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=20_000, help="in windows, of each kind and turn")
    parser.add_argument("--compiled", metavar="PYTHON", help="an interpreter with the compiled form")
    parser.add_argument("--docs", action="store_true", help="write the table into the page")
    parser.add_argument("--turn", nargs=4, metavar=("CLIENT", "SERVERS", "TOPIC", "RECORDS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.turn:
        client, servers, topic, records = chosen.turn
        print(json.dumps(asyncio.run(turn(client, servers, topic, int(records)))))
        return
    with started(1, 0.0) as cluster:
        cluster.create_topic("drop-in", partitions=1, replication_factor=1)
        rounds: list[dict[str, dict[str, float]]] = []
        pythons = {AIOKAFKA: sys.executable, DROP_IN: sys.executable}
        if chosen.compiled:
            pythons[COMPILED] = chosen.compiled
        for _ in range(chosen.rounds):
            rounds.append({
                client: child(python, client, cluster.bootstrap_servers, "drop-in", chosen.records)
                for client, python in pythons.items()
            })  # fmt: skip
    text = table(rounds)
    print(text)
    if chosen.docs:
        write(text)


if __name__ == "__main__":
    main()
