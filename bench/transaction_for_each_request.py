"""The cost of a transaction for each request: `python bench/transaction_for_each_request.py`.

A request sends two records to two topics. Played are requests with one plain idempotent producer, and requests with a pool of
transactional producers, one transaction each (docs/exactly_once.md), by one client and by 64 at the same time. No web framework
is in between. Each kind takes a turn per round, in a process of its own; printed are the medians, and the ratios to the plain
producer, which are computed round by round.

`--bootstrap HOST:PORT` uses a cluster that is there and creates topics by itself, and the form that this interpreter has (two
minutes). Without it a real one of three brokers is started. `--docs` measures both forms on that and writes the table into
docs/exactly_once.md (seven minutes, and one or two more to build the compiled form).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from aiokprod import Producer, compiled

TOPICS = ("requests-orders", "requests-invoices")
PLAIN = "plain"
KINDS: dict[str, int] = {PLAIN: 0, "pool of 1": 1, "pool of 4": 4, "pool of 16": 16}
"""Each with the number of its transactional producers."""
VALUE = b"v" * 200
PAGE = Path(__file__).parents[1] / "docs" / "exactly_once.md"
BEGIN = "<!-- figures: python bench/transaction_for_each_request.py --docs -->"
END = "<!-- end of figures -->"
HOW = """The same requests, with and without transactions, in one run: two records of 200 bytes to two topics on three brokers,
which share a processor core; the client has the other. Medians of {rounds} rounds, with the minimum and the maximum.
{facts}
"""
Request = Callable[[int], Awaitable[object]]


class Turn(NamedTuple):
    """The form, the number of clients and the kind of requests of a turn."""

    form: str
    clients: int
    kind: str


class Figures(NamedTuple):
    """The measurements of a turn."""

    rate: float
    """requests per second"""
    cpu_us: float
    """the client's processor time for a request, in microseconds"""
    p50_ms: float
    p99_ms: float


@asynccontextmanager
async def plain(servers: str) -> AsyncIterator[Request]:
    """Yield a request that sends and waits for both acknowledgements."""
    async with Producer(servers, linger_ms=0) as producer:

        async def request(number: int) -> None:
            key = b"%d" % number
            await asyncio.gather(*(producer.send(topic, VALUE, key=key) for topic in TOPICS))

        yield request


@asynccontextmanager
async def pooled(servers: str, size: int) -> AsyncIterator[Request]:
    """Yield a request that borrows a producer for one transaction."""
    free: asyncio.Queue[Producer] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        for number in range(size):
            producer = Producer(servers, transactional_id=f"requests-{size}-{number}", linger_ms=0)
            free.put_nowait(await stack.enter_async_context(producer))

        async def request(number: int) -> None:
            producer = await free.get()
            try:
                async with producer.transaction():
                    for topic in TOPICS:
                        producer.send(topic, VALUE, key=b"%d" % number)
            finally:
                free.put_nowait(producer)

        yield request


def requests_of(servers: str, kind: str) -> AbstractAsyncContextManager[Request]:
    return pooled(servers, KINDS[kind]) if KINDS[kind] else plain(servers)


async def play(request: Request, clients: int, seconds: float) -> Figures:
    """Let so many clients make one request after the other."""
    taken: list[float] = []

    async def client(number: int, until: float, times: list[float]) -> None:
        while (began := time.perf_counter()) < until:
            await request(number)
            times.append(time.perf_counter() - began)
            # The next one comes by the loop: a producer of the pool goes to a request that waits.
            await asyncio.sleep(0)

    for bound_s, times in ((seconds / 5, []), (seconds, taken)):  # the first one is not counted
        began, processor = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client(number, began + bound_s, times) for number in range(clients)))
        elapsed_s, processor_s = time.perf_counter() - began, time.process_time() - processor
    cuts = statistics.quantiles(taken, n=100)
    return Figures(len(taken) / elapsed_s, processor_s / len(taken) * 1e6, cuts[49] * 1000, cuts[98] * 1000)


async def take(servers: str, turn: Turn, seconds: float) -> Figures:
    async with requests_of(servers, turn.kind) as request:
        return await play(request, turn.clients, seconds)


def turns(forms: Sequence[str], loads: Sequence[int]) -> list[Turn]:
    """Return the turns of a round. More producers than clients make no difference."""
    return [
        Turn(form, clients, kind)
        for clients in loads
        for form in forms
        for kind, size in KINDS.items()
        if size <= clients
    ]


def child(servers: str, turn: Turn, seconds: float, pythons: Mapping[str, str], core: int | None) -> Figures:
    """Take a turn in a process of its own."""
    from compiled import environment_of

    command = [
        pythons[turn.form],
        __file__,
        "--bootstrap",
        servers,
        "--seconds",
        str(seconds),
        "--turn",
        json.dumps(turn),
    ]
    if core is not None:
        command += ["--core", str(core)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment_of(turn.form))
    return Figures(*json.loads(done.stdout))


def table(found: Mapping[Turn, Sequence[Figures]]) -> str:
    """Return the medians, with minimum and maximum, and the ratios to the plain requests of the same form and load."""
    head = ["clients", "form", "requests", "requests/s", ": plain", "CPU per request, µs", ": plain"]
    head += ["p50, ms", ": plain", "p99, ms"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for turn, figures in found.items():
        base = found[turn._replace(kind=PLAIN)]
        cells = [f"{turn.clients}", turn.form, turn.kind]
        for number, (form, ratio_form) in enumerate(((",.0f", ".3f"), (",.0f", ".1f"), (".2f", ".1f"), (".1f", ""))):
            cells.append(spread([each[number] for each in figures], form))
            if ratio_form:
                ratios = [each[number] / other[number] for each, other in zip(figures, base, strict=True)]
                cells.append(spread(ratios, ratio_form))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: Sequence[float], form: str) -> str:
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def measure(pythons: Mapping[str, str], servers: str, chosen: argparse.Namespace, core: int | None) -> str:
    found: dict[Turn, list[Figures]] = {turn: [] for turn in turns(list(pythons), chosen.clients)}
    for _ in range(chosen.rounds):
        for turn, figures in found.items():
            figures.append(child(servers, turn, chosen.seconds, pythons, core))
            print(f"{turn.clients} clients, {turn.form}, {turn.kind}: {figures[-1]}", file=sys.stderr, flush=True)
    return table(found)


def write(page: Path, text: str) -> None:
    """Write the figures between the marks of the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="a cluster that is there")
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[1, 64], help="requests made at the same time (default 1 64)"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn (default 8)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--docs", action="store_true", help="also write the table into docs/exactly_once.md")
    parser.add_argument("--turn", help="one turn, printed as JSON")
    parser.add_argument("--core", type=int, help="the processor of that turn (default any)")
    chosen = parser.parse_args()
    if chosen.turn is not None:
        if chosen.core is not None:
            os.sched_setaffinity(0, {chosen.core})
        print(json.dumps(asyncio.run(take(chosen.bootstrap, Turn(*json.loads(chosen.turn)), chosen.seconds))))
        return
    if chosen.docs and chosen.bootstrap:
        parser.error("the page tells of brokers that this script has started: --docs goes without --bootstrap")
    if chosen.bootstrap:
        form = "compiled" if compiled else "pure"
        print(measure({form: sys.executable}, chosen.bootstrap, chosen, None))
        return
    import machine
    from brokers import client_core, started
    from compiled import compiled_python

    pythons = {"compiled": str(compiled_python())} if chosen.docs else {}
    with started(3, 0.0) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, partitions=6)
        text = measure({**pythons, "pure": sys.executable}, cluster.bootstrap_servers, chosen, client_core())
    print(text)
    if chosen.docs:
        facts = "; ".join(f"{name}: {value}" for name, value in machine.facts().items() if name in FACTS) + "."
        write(PAGE, HOW.format(rounds=chosen.rounds, facts=facts) + "\n" + text)


FACTS = ("date", "processor", "system", "Python", "Apache Kafka", "aiokprod")


if __name__ == "__main__":
    main()
