"""aiokprod beside other clients, on one real broker, in one run: `python bench/run.py firehose --rounds 5`.

The client has one processor for itself and the broker the other; clients take turns, round after round. What was
acknowledged is compared with what the log has. Rates say more of the broker the busier its processor is, so the cost of
the client is told beside them: microseconds of its processor per record.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

from items import ITEMS, Entry, Item
from job import Job, Measured
from report import Table, markdown

from aiokprod.testing import KafkaCluster

HERE = Path(__file__).parent
CLIENT_CORE, BROKER_CORE = 0, 1
QUICK = 0.05
LIMIT_S = 900.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items", nargs="*", metavar="item", help=f"of {', '.join(ITEMS)}; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, one round")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    words = parser.parse_args()
    if unknown := set(words.items) - set(ITEMS):
        parser.error(f"no item {', '.join(sorted(unknown))}; there are {', '.join(ITEMS)}")
    rounds, scale = (1, QUICK) if words.quick else (words.rounds, 1.0)
    with broker() as cluster:
        tables = [measure(cluster, item, rounds, scale) for name in words.items or ITEMS for item in ITEMS[name]()]
    text = markdown(tables)
    print(text)
    if words.markdown:
        words.markdown.write_text(text)
    if words.json:
        words.json.write_text(json.dumps([asdict(table) for table in tables], indent=1))


@contextmanager
def broker() -> Iterator[KafkaCluster]:
    """One broker, on its own processor where there are two."""
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, {BROKER_CORE})  # the broker inherits it
    with KafkaCluster(brokers=1, config={"num.io.threads": "2"}) as cluster:
        os.sched_setaffinity(0, cores)
        yield cluster


def measure(cluster: KafkaCluster, item: Item, rounds: int, scale: float) -> Table:
    table = Table(item.title, item.waits, [entry.name for entry in item.entries])
    for number in range(rounds):
        for entry in item.entries:
            topic = f"bench-{abs(hash(item.title)) % 10**6}-{number}-{item.entries.index(entry)}"
            measured = run_one(cluster, item, entry, topic, scale)
            table.add(entry.name, measured)
            print(f"{item.title}: {entry.name}: {measured.rate:,.0f}/s {measured.cpu_us:.2f} us", file=sys.stderr)
    return table


def run_one(cluster: KafkaCluster, item: Item, entry: Entry, topic: str, scale: float) -> Measured:
    """One client, once, on a topic of its own."""
    count = max(100, int(entry.count * scale))
    cluster.create_topic(topic, partitions=item.partitions, replication_factor=1)
    job = Job(
        client=entry.client,
        way=entry.way,
        servers=cluster.bootstrap_servers,
        topic=topic,
        count=count,
        core=CLIENT_CORE if len(os.sched_getaffinity(0)) > 1 else None,
        settings=dict(entry.settings),
        **item.common,
    )
    command = [sys.executable, str(HERE / "child.py"), job.to_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE) as child:
        assert child.stdout is not None
        broker_pid = java_child()
        expect(child.stdout, "begin")
        before_s = cpu_s(broker_pid)
        expect(child.stdout, "end")
        broker_cpu_s = cpu_s(broker_pid) - before_s
        line = child.stdout.readline()
        if child.wait(LIMIT_S) != 0:
            raise SystemExit(f"{entry.name} failed")
    measured = Measured(**json.loads(line))
    measured.broker_cpu_s = broker_cpu_s
    written = sum(cluster.end_offsets(topic))
    assert written == count + 1, f"{entry.name}: {count} and one before them were sent, the log has {written}"
    cluster.delete_topic(topic)
    return measured


def expect(lines: IO[str], word: str) -> None:
    for line in lines:
        if line.strip() == word:
            return
    raise SystemExit(f"the client ended before it said {word!r}")


def java_child() -> int:
    """The process of the broker that this one has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition(")")
        except OSError:
            continue  # it ended meanwhile
        if name.endswith("(java") and rest.split()[1] == str(os.getpid()):
            return int(folder.name)
    raise SystemExit("there is no broker")


def cpu_s(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
