"""Outages in the logs of several clients: `python bench/outages.py`, three minutes.

aiokprod, aiokafka, confluent-kafka and kafka-python, each in a process of its own, send a record each second to a `MockCluster`
of their own, on real sockets, fire and forget, with default options. After 5 s something breaks; 20 s later it is mended.
Noted are the lines at WARNING or above that a client logs meanwhile, and whether a line at INFO or above says within 5 s
of the end that it is over. confluent-kafka is given a logger and an `error_cb` that logs. A call of the client that raises is a
line as well, and so is asyncio's line about a future whose exception nothing has fetched.

A line counts if it names the cause, in any words (`CONNECTION` and the like below): `--raw FILE` keeps the first line of each
client and outage, and those that were not counted. `--docs` writes the table into docs/outages.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CLIENTS: Final = ("aiokprod", "aiokafka", "confluent-kafka", "kafka-python")
LOGGERS: Final = {
    "aiokprod": ("aiokprod",),
    "aiokafka": ("aiokafka", "asyncio"),
    "confluent-kafka": ("confluent_kafka",),
    "kafka-python": ("kafka",),
}
"""Lines of the service itself come from a logger `service`: calls that raise."""
ASKED: Final = {
    "aiokprod": "`health()`, `explain()`, `metrics()`",
    "aiokafka": "nothing",
    "confluent-kafka": "statistics in JSON, if `statistics.interval.ms` is set",
    "kafka-python": "`metrics()`",
}
PAGE: Final = Path(__file__).parents[1] / "docs" / "outages.md"
MARK: Final = "<!-- generated: bench/outages.py -->\n"
EXPLAINED: Final = """\
The same service with each client, in a process and beside a `MockCluster` of its own, on real sockets: a record
each second, fire and forget, with default options. Each outage lasts 20 s. A cell has the seconds until the first
line at WARNING or above that names the cause, and the number of such lines in the 20 s; *and the end*: a line at
INFO or above says within 5 s that it is over, which may be no more than a connection that is made. confluent-kafka
has a logger, and an `error_cb` that logs: some of its lines say the same twice. A call that raises counts as a
line, and so does that of asyncio about an exception that nothing has fetched. What a client says only after a
timeout of 30 s or more is not seen here; and with each of them a program that looks at the outcome of each record
sees the errors of records."""
VARIES: Final = """\
`python bench/outages.py --docs` writes this section, from one run. In others the numbers of lines differ, and so does what
depends on the moment of a reconnection or a refresh of metadata: "No right" with confluent-kafka (3 s, 14 s or nothing), and
"and the end" with kafka-python where brokers have died."""
TOPIC: Final = "orders"
CALM_S, LASTS_S, AFTER_S, END_S, ASKED_S = 5.0, 20.0, 8.0, 5.0, 15.0
AT_ONCE: Final = 4
SAYING: Final = threading.Lock()


# ---------------------------------------------------------------------- the outages
@dataclass
class Scene:
    """One client's cluster."""

    cluster: Any
    tell: Callable[[dict[str, Any]], None]
    """Give the service another topic, or other values."""
    rules: list[Any] = field(default_factory=list)
    leader: int = 1


Step = Callable[[Scene], None]


@dataclass(frozen=True)
class Outage:
    """One outage: the section of docs/outages.md that has the same name says what happens.

    Args:
        name: its heading on the page.
        begin: makes it happen.
        end: mends it.
        cause: a line that matches names the cause.
        over: a line after the end that matches says that it is over.
        sasl: the service has a password.
    """

    name: str
    begin: Step
    end: Step
    cause: str
    over: str
    sasl: bool = False


CONNECTION: Final = (
    r"connect|refused|reset|transport|unreachable|not available|unavailable"
    r"|brokers? .*down|no broker|no node|not ?ready|unable"
)
SILENCE: Final = r"time[sd]? ?-?out|timeout|no outcome|not (been )?answered|not respond|no response|slow|still waiting"
OVER: Final = r"can be \w+ again|records again|is gone|any ?more|recover|restored|success|is over"
AUTHENTICATED: Final = rf"{OVER}|authenticated as"
CONNECTED: Final = rf"{AUTHENTICATED}|: connected\b|-> open\b|connection complete|connection .*established"


def failing(error: str) -> Step:
    return lambda scene: scene.rules.append(scene.cluster.fail_next("Produce", error, times=None))


def mended(scene: Scene) -> None:
    for rule in scene.rules:
        rule.cancel()


def no_brokers(scene: Scene) -> None:
    for node in scene.cluster.broker_ids:
        scene.cluster.kill_broker(node, elect=False)


def brokers_back(scene: Scene) -> None:
    for node in scene.cluster.broker_ids:
        scene.cluster.start_broker(node)


def one_broker(scene: Scene) -> None:
    scene.leader = scene.cluster.leader(TOPIC, 0)
    scene.cluster.kill_broker(scene.leader, elect=False)


def frozen(scene: Scene) -> None:
    scene.leader = scene.cluster.leader(TOPIC, 0)
    scene.cluster.freeze_broker(scene.leader)


def slow(scene: Scene) -> None:
    scene.rules.append(scene.cluster.delay_next("Produce", 12.0, times=None))


def unknown(scene: Scene) -> None:
    scene.tell({"topic": "ordres"})


def too_large(scene: Scene) -> None:
    scene.cluster.alter_topic(TOPIC, max_message_bytes=500)
    scene.tell({"bytes": 1_000})


def bad_password(scene: Scene) -> None:
    scene.rules.append(scene.cluster.fail_next("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times=None))
    scene.cluster.close_connections(abort=True)


def created(topic: str) -> Step:
    return lambda scene: scene.cluster.create_topic(topic, partitions=1, replication_factor=3)


OUTAGES: Final = (
    Outage("No brokers", no_brokers, brokers_back, CONNECTION, CONNECTED),
    Outage("One broker", one_broker, lambda scene: scene.cluster.start_broker(scene.leader), CONNECTION, CONNECTED),
    Outage(
        "A frozen broker",
        frozen,
        lambda scene: scene.cluster.thaw_broker(scene.leader),
        f"{CONNECTION}|{SILENCE}",
        CONNECTED,
    ),
    Outage("A slow broker", slow, mended, SILENCE, OVER),
    Outage(
        "Not enough replicas", failing("NOT_ENOUGH_REPLICAS"), mended, r"not_?\s?enough_?\s?replicas|in.?sync", OVER
    ),
    Outage("A storage error", failing("KAFKA_STORAGE_ERROR"), mended, r"storage_?\s?error|\bdisk\b|log file", OVER),
    Outage(
        "No leader",
        lambda scene: scene.cluster.move_leader(TOPIC, 0, None),
        lambda scene: scene.cluster.move_leader(TOPIC, 0, 1),
        r"leader",
        OVER,
    ),
    Outage(
        "A topic that is deleted",
        lambda scene: scene.cluster.delete_topic(TOPIC),
        created(TOPIC),
        r"unknown_?\s?topic|not (know|exist|found)|metadata|topic.*(deleted|missing|not available)",
        OVER,
    ),
    Outage(
        "An unknown topic",
        unknown,
        created("ordres"),
        r"unknown_?\s?topic|not (know|exist|found)|metadata|topic.*(missing|not available)",
        OVER,
    ),
    Outage("No right", failing("TOPIC_AUTHORIZATION_FAILED"), mended, r"authori[sz]", OVER),
    Outage(
        "A quota",
        lambda scene: scene.cluster.set_quota("shop", 10.0),
        lambda scene: scene.cluster.set_quota("shop", None),
        r"throttl|quota",
        OVER,
    ),
    Outage(
        "Messages that are too large",
        too_large,
        lambda scene: scene.cluster.alter_topic(TOPIC, max_message_bytes=1_000_000),
        r"too_?\s?large|size|max.message.bytes",
        OVER,
    ),
    Outage("A bad password", bad_password, mended, r"sasl|authenticat|password|credential", AUTHENTICATED, sasl=True),
)


# ---------------------------------------------------------------------- the service, in a process of its own
def say(kind: str, **what: Any) -> None:
    """Write a line for the parent: the clock is that of all processes of this machine."""
    line = json.dumps({"kind": kind, "at": time.monotonic(), **what}) + "\n"
    with SAYING:  # threads of a client log as well
        sys.stdout.write(line)
        sys.stdout.flush()


class Lines(logging.Handler):
    """Give each line to the parent."""

    def emit(self, record: logging.LogRecord) -> None:
        say("line", logger=record.name, level=record.levelno, text=f"{record.levelname} {record.getMessage()}")


@dataclass
class Work:
    """The records of the service; the parent may change them."""

    topic: str = TOPIC
    value: bytes = b"an order"

    def listen(self) -> None:
        for line in sys.stdin:
            change = json.loads(line)
            self.topic = change.get("topic", self.topic)
            self.value = b"x" * change.get("bytes", len(self.value))


def raised(error: Exception) -> None:
    logging.getLogger("service").warning("the call raised %s: %s", type(error).__name__, error)


async def with_aiokprod(work: Work, servers: str, sasl: bool) -> None:
    from aiokprod import Producer

    options: dict[str, Any] = {}
    if sasl:
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        options |= {"sasl_username": "shop", "sasl_password": "secret"}
    async with Producer(servers, client_id="shop", **options) as producer:
        say("ready")
        while True:
            try:
                producer.send(work.topic, work.value)
            except Exception as error:
                raised(error)
            health = producer.health()
            say("health", state=health.state.value, reason=health.reason)
            await asyncio.sleep(1)


async def with_aiokafka(work: Work, servers: str, sasl: bool) -> None:
    from aiokafka import AIOKafkaProducer

    options: dict[str, Any] = {}
    if sasl:
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        options |= {"sasl_plain_username": "shop", "sasl_plain_password": "secret"}
    async with AIOKafkaProducer(bootstrap_servers=servers, client_id="shop", **options) as producer:
        say("ready")
        while True:
            try:
                await producer.send(work.topic, work.value)
            except Exception as error:
                raised(error)
            await asyncio.sleep(1)


def with_confluent(work: Work, servers: str, sasl: bool) -> None:
    from confluent_kafka import Producer

    logger = logging.getLogger("confluent_kafka")
    options: dict[str, Any] = {"bootstrap.servers": servers, "client.id": "shop"}
    if sasl:
        options |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        options |= {"sasl.username": "shop", "sasl.password": "secret"}
    options["error_cb"] = lambda error: logger.error("error_cb: %s", error)
    producer = Producer(options, logger=logger)
    say("ready")
    while True:
        try:
            producer.produce(work.topic, work.value)
        except Exception as error:
            raised(error)
        ends = time.monotonic() + 1
        while (left := ends - time.monotonic()) > 0:
            producer.poll(left)


def with_kafka_python(work: Work, servers: str, sasl: bool) -> None:
    from kafka import KafkaProducer

    options: dict[str, Any] = {}
    if sasl:
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        options |= {"sasl_plain_username": "shop", "sasl_plain_password": "secret"}
    producer = KafkaProducer(bootstrap_servers=servers.split(","), client_id="shop", **options)
    say("ready")
    while True:
        try:
            producer.send(work.topic, work.value)
        except Exception as error:
            raised(error)
        time.sleep(1)


def serve(client: str, servers: str, sasl: bool) -> None:
    """Send a record each second, until the process is ended."""
    logging.getLogger().addHandler(Lines())
    logging.getLogger().setLevel(logging.INFO)
    work = Work()
    threading.Thread(target=work.listen, daemon=True).start()
    if client == "aiokprod":
        asyncio.run(with_aiokprod(work, servers, sasl))
    elif client == "aiokafka":
        asyncio.run(with_aiokafka(work, servers, sasl))
    elif client == "confluent-kafka":
        with_confluent(work, servers, sasl)
    else:
        with_kafka_python(work, servers, sasl)


# ---------------------------------------------------------------------- what is seen
@dataclass
class Seen:
    """All that one client said about one outage."""

    first_s: float | None = None
    lines: int = 0
    end_said: bool = False
    first: str | None = None
    health: str | None = None
    others: list[str] = field(default_factory=list)
    """Lines at WARNING or above of the outage that do not name the cause."""
    after: list[str] = field(default_factory=list)
    """Lines at INFO or above, up to 5 s after the end."""

    def cell(self) -> str:
        end = ", and the end" if self.end_said else ""
        if self.first_s is None:
            return f"nothing in {LASTS_S:.0f} s{end}"
        return f"{self.first_s:.0f} s, {self.lines:,} line{'s' * (self.lines != 1)}{end}"


def judged(client: str, outage: Outage, events: Sequence[dict[str, Any]], began: float, ended: float) -> Seen:
    """Return what the events of a service show of an outage that began and ended at these times."""
    seen = Seen()
    own = re.compile(rf"({'|'.join(LOGGERS[client])}|service)(\.|$)")
    usual: set[str] = set()  # said in calm, whatever the numbers: no sign of an outage
    for event in events:
        if event["kind"] == "health" and event["at"] <= began + ASKED_S:
            seen.health = f"{event['state']}: {event['reason']}" if event["reason"] else event["state"]
        if event["kind"] != "line" or not own.match(event["logger"]):
            continue
        text = " / ".join(event["text"].splitlines()[:3])
        shape = re.sub(r"\d+", "0", text)
        if event["at"] < began:
            usual.add(shape)
        elif event["at"] < ended and event["level"] >= logging.WARNING:
            if shape in usual:
                continue
            if not re.search(outage.cause, event["text"], re.IGNORECASE):
                seen.others.append(text)
                continue
            seen.lines += 1
            if seen.first_s is None:
                seen.first_s, seen.first = event["at"] - began, text
        elif ended <= event["at"] <= ended + END_S and event["level"] >= logging.INFO:
            seen.after.append(text)
            seen.end_said |= bool(re.search(outage.over, text, re.IGNORECASE))
    return seen


async def play(client: str, outage: Outage) -> Seen:
    """Run the service of one client through one outage."""
    from aiokprod.testing import MockCluster

    access: dict[str, Any] = {"sasl_mechanisms": ["PLAIN"], "users": {"shop": "secret"}} if outage.sasl else {}
    events: list[dict[str, Any]] = []
    ready = asyncio.Event()
    async with MockCluster(3, seed=1, auto_create_topics=False, **access) as cluster:
        cluster.create_topic(TOPIC, partitions=1, replication_factor=3)
        command = [__file__, "--serve", client, cluster.bootstrap_servers, "sasl" if outage.sasl else "plain"]
        child = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24
        )
        assert child.stdin is not None and child.stdout is not None
        stdin, stdout = child.stdin, child.stdout

        async def read() -> None:
            async for line in stdout:
                if not line.endswith(b"\n"):
                    break  # the process was ended in the middle of it
                event = json.loads(line)
                events.append(event)
                if event["kind"] == "ready":
                    ready.set()

        reading = asyncio.ensure_future(read())
        scene = Scene(cluster, lambda change: stdin.write(json.dumps(change).encode() + b"\n"))
        try:
            await asyncio.wait_for(ready.wait(), 30)
            await asyncio.sleep(CALM_S)
            assert cluster.records(TOPIC), f"{client}: nothing was delivered before {outage.name!r}"
            began = time.monotonic()
            outage.begin(scene)
            await asyncio.sleep(LASTS_S)
            ended = time.monotonic()
            outage.end(scene)
            await asyncio.sleep(AFTER_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            await reading
    return judged(client, outage, events, began, ended)


async def play_all(outages: Sequence[Outage]) -> dict[str, dict[str, Seen]]:
    """Play the outages, some at a time; each client has its own cluster and process."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(outage: Outage) -> dict[str, Seen]:
        async with slots:
            found = await asyncio.gather(*(play(client, outage) for client in CLIENTS))
            print(outage.name, flush=True)
            return dict(zip(CLIENTS, found, strict=True))

    played = await asyncio.gather(*map(one, outages))
    return {outage.name: seen for outage, seen in zip(outages, played, strict=True)}


# ---------------------------------------------------------------------- the table
def table(found: dict[str, dict[str, Seen]]) -> str:
    lines = [f"| | {' | '.join(CLIENTS)} |", "|---" * (len(CLIENTS) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(seen[client].cell() for client in CLIENTS)} |" for name, seen in found.items()]
    lines.append(f"| a program can ask | {' | '.join(ASKED[client] for client in CLIENTS)} |")
    return "\n".join(lines)


def section(found: dict[str, dict[str, Seen]], versions: dict[str, str]) -> str:
    """Return the section of the page."""
    named = ", ".join(f"{client} {version}" for client, version in versions.items())
    degraded = sum(not (seen["aiokprod"].health or "ready").lower().startswith("ready") for seen in found.values())
    return (
        f"{MARK}\n## Beside other clients\n\n"
        f"{EXPLAINED}\n\n"
        f"{table(found)}\n\n"
        f"15 s after the beginning `health()` of aiokprod was not READY in {degraded} of {len(found)}.\n"
        f"Versions: {named}.\n"
        f"{VARIES}\n"
    )


def write(text: str) -> None:
    """Put the section at the end of the page."""
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0].rstrip("\n")
    PAGE.write_text(f"{head}\n\n{text}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "outages", nargs="*", metavar="NAME", help="headings of docs/outages.md; default: all that are here"
    )
    parser.add_argument("--raw", metavar="FILE", type=Path, help="write what was seen as JSON")
    parser.add_argument("--docs", action="store_true", help="write the section into the page")
    parser.add_argument("--serve", nargs=3, metavar=("CLIENT", "SERVERS", "ACCESS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        client, servers, access = chosen.serve
        serve(client, servers, access == "sasl")
        return
    outages = [outage for outage in OUTAGES if not chosen.outages or outage.name in chosen.outages]
    if not outages or (chosen.docs and len(outages) < len(OUTAGES)):
        parser.error("no such outage" if not outages else "--docs takes no names: the page has all outages")
    found = asyncio.run(play_all(outages))
    versions = {client: importlib.metadata.version(client) for client in CLIENTS}
    print(section(found, versions))
    if chosen.raw:
        raw = {name: {client: vars(each) for client, each in seen.items()} for name, seen in found.items()}
        chosen.raw.write_text(json.dumps(raw, indent=1), encoding="utf-8")
    if chosen.docs:
        write(section(found, versions))


if __name__ == "__main__":
    main()
