"""The outages of docs/outages.md: how each begins and ends, on a `MockCluster` in virtual time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from virtual_rig import room

from aiokprod import OAuthToken, Producer
from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster
from aiokprod.testing.faults import Rule
from aiokprod.testing.virtual import VirtualNetwork

TOPIC: Final = "orders"
TRANSACTIONAL_ID: Final = "shop"


class Scene:
    """A cluster, a producer with `client_id` shop, and a service that sends a record each second."""

    def __init__(self, network: VirtualNetwork, brokers: int, cluster_options: dict[str, Any]) -> None:
        self.network = network
        self.cluster = MockCluster(brokers, network=network, seed=1, auto_create_topics=False, **cluster_options)
        self.gate = asyncio.Event()  # what a serializer or a token provider waits for
        self.gate.set()
        self.broken_dial: Callable[[], Exception] | None = None
        self.topic = TOPIC
        self.value = b"an order"
        self.rules: list[Rule] = []
        self.leader = 1
        self.producer: Producer
        self.others: list[Producer] = []

    async def dial(self, *arguments: Any) -> Any:
        if self.broken_dial is not None:
            raise self.broken_dial()
        return await self.network.dial(*arguments)

    async def serialize(self, topic: str, headers: Any, data: bytes) -> bytes:
        await self.gate.wait()
        return data

    async def token(self) -> OAuthToken:
        await self.gate.wait()
        return OAuthToken("shop", None)

    # ------------------------------------------------------------------ beginnings and ends that several share
    def break_with(self, make: Callable[[MockCluster], Rule]) -> None:
        self.rules.append(make(self.cluster))

    def mend(self) -> None:
        for rule in self.rules:
            rule.cancel()

    def reconnect_as(self, broken: Callable[[], Exception] | None) -> None:
        """Let each new connection fail so; those that are open end."""
        self.broken_dial = broken
        if broken is not None:
            self.cluster.close_connections(abort=True)


Step = Callable[[Scene], "Awaitable[None] | None"]


@dataclass(frozen=True)
class Outage:
    """One outage.

    Args:
        name: its heading on the page.
        cause: what has happened, in a sentence.
        begin: makes it happen.
        end: mends it; None: nothing has to be, or only a restart of the service does.
        options: of the producer, by the scene.
        brokers: of the cluster.
        cluster: options of the cluster.
        in_transactions: the service sends each record in a transaction.
        over_s: within so many seconds its end is seen.
        end_text: without an end: how it ends.
    """

    name: str
    cause: str
    begin: Step
    end: Step | None
    options: Callable[[Scene], dict[str, Any]] = lambda _scene: {}
    brokers: int = 3
    cluster: dict[str, Any] = field(default_factory=dict)
    in_transactions: bool = False
    over_s: float = 5.0
    end_text: str = "a new start of the service"


def failing(api: str, error: str, **where: Any) -> Step:
    return lambda scene: scene.break_with(lambda cluster: cluster.fail_next(api, error, times=None, **where))


def mended(scene: Scene) -> None:
    scene.mend()


# ---------------------------------------------------------------------- brokers
def no_brokers(scene: Scene) -> None:
    for node in scene.cluster.broker_ids:
        scene.cluster.kill_broker(node, elect=False)


def brokers_back(scene: Scene) -> None:
    for node in scene.cluster.broker_ids:
        scene.cluster.start_broker(node)


def one_broker(scene: Scene) -> None:
    scene.leader = scene.cluster.leader(TOPIC, 0) or 1
    scene.cluster.kill_broker(scene.leader, elect=False)


def one_back(scene: Scene) -> None:
    scene.cluster.start_broker(scene.leader)


def frozen(scene: Scene) -> None:
    scene.leader = scene.cluster.leader(TOPIC, 0) or 1
    scene.cluster.freeze_broker(scene.leader)


def thawed(scene: Scene) -> None:
    scene.cluster.thaw_broker(scene.leader)


def no_leader(scene: Scene) -> None:
    scene.cluster.move_leader(TOPIC, 0, None)


def leader_back(scene: Scene) -> None:
    scene.cluster.move_leader(TOPIC, 0, 1)


# ---------------------------------------------------------------------- topics and rights
def deleted(scene: Scene) -> None:
    scene.cluster.delete_topic(TOPIC)


def created(scene: Scene) -> None:
    scene.cluster.create_topic(scene.topic, partitions=1, replication_factor=3)


def unknown(scene: Scene) -> None:
    scene.topic = "ordres"


def quota(scene: Scene) -> None:
    scene.cluster.set_quota("shop", 10.0)


def no_quota(scene: Scene) -> None:
    scene.cluster.set_quota("shop", None)


def too_large(scene: Scene) -> None:
    scene.cluster.alter_topic(TOPIC, max_message_bytes=500)
    scene.value = b"x" * 1_000


def large_enough(scene: Scene) -> None:
    scene.cluster.alter_topic(TOPIC, max_message_bytes=1_000_000)


# ---------------------------------------------------------------------- the producer and what it is given
def full(scene: Scene) -> None:
    scene.value = b"x" * 4_000
    scene.break_with(lambda cluster: cluster.hold("Produce"))


def hanging(scene: Scene) -> None:
    scene.gate.clear()


def going(scene: Scene) -> None:
    scene.gate.set()


def token_hangs(scene: Scene) -> None:
    scene.gate.clear()
    scene.cluster.close_connections(abort=True)


def bad_password(scene: Scene) -> None:
    scene.break_with(lambda cluster: cluster.fail_next("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times=None))
    scene.cluster.close_connections(abort=True)


def expired() -> Exception:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed: certificate has expired")
    error.verify_code, error.verify_message = 10, "certificate has expired"
    return error


def nameless() -> Exception:
    return socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def reachable(scene: Scene) -> None:
    scene.reconnect_as(None)


async def blocked(scene: Scene) -> None:
    # The clock of the loop goes on, and nothing runs: as a call that does not return has it.
    loop: Any = asyncio.get_running_loop()
    loop.jump(10.0)


# ---------------------------------------------------------------------- transactions
def coordinator_gone(scene: Scene) -> None:
    scene.cluster.load_coordinator(TRANSACTIONAL_ID)


def coordinator_back(scene: Scene) -> None:
    scene.cluster.load_coordinator(TRANSACTIONAL_ID, False)


async def fenced(scene: Scene) -> None:
    other = Producer(
        scene.cluster.bootstrap_servers, dialer=scene.network.dial, transactional_id=TRANSACTIONAL_ID, client_id="other"
    )
    scene.others.append(other)
    await other.start()


def unknown_end(scene: Scene) -> None:
    scene.break_with(lambda cluster: cluster.swallow_next("EndTxn", times=None))


def sasl(mechanism: str, **options: Any) -> Callable[[Scene], dict[str, Any]]:
    def made(scene: Scene) -> dict[str, Any]:
        given = {"sasl_oauth_token_provider": scene.token} if mechanism == "OAUTHBEARER" else options
        return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism} | given

    return made


def transactional(_scene: Scene) -> dict[str, Any]:
    return {"transactional_id": TRANSACTIONAL_ID}


OUTAGES: Final = (
    Outage("No brokers", "all brokers have died", no_brokers, brokers_back),
    Outage("One broker", "the leader has died, and no other one is elected", one_broker, one_back),
    Outage("A frozen broker", "the leader runs, and answers nothing", frozen, thawed),
    Outage(
        "A slow broker",
        "each Produce takes 12 s",
        lambda scene: scene.break_with(lambda cluster: cluster.delay_next("Produce", 12.0, times=None)),
        mended,
    ),
    Outage(
        "Not enough replicas",
        "fewer replicas are in sync than `min.insync.replicas`",
        failing("Produce", "NOT_ENOUGH_REPLICAS"),
        mended,
    ),
    Outage("A storage error", "the leader's disk has failed", failing("Produce", "KAFKA_STORAGE_ERROR"), mended),
    Outage("No leader", "no replica may lead the partition", no_leader, leader_back),
    Outage("A topic that is deleted", "and is not created again for a while", deleted, created),
    Outage("An unknown topic", "its name is misspelt", unknown, created),
    Outage("No right", "WRITE on the topic was taken away", failing("Produce", "TOPIC_AUTHORIZATION_FAILED"), mended),
    Outage("A quota", "the client may write 10 bytes a second", quota, no_quota, over_s=60.0),
    Outage("Messages that are too large", "`max.message.bytes` of the topic was lowered", too_large, large_enough),
    Outage(
        "A full buffer",
        "no Produce is answered, and `buffer_memory` is small",
        full,
        mended,
        lambda _scene: room(20_000),
    ),
    Outage(
        "A serializer that hangs",
        "it awaits something that does not come",
        hanging,
        going,
        lambda scene: {"value_serializer": scene.serialize},
    ),
    Outage(
        "A token provider that hangs",
        "and the connections have ended",
        token_hangs,
        going,
        sasl("OAUTHBEARER"),
        cluster={"sasl_mechanisms": ["OAUTHBEARER"], "users": {"shop": "shop"}},
    ),
    Outage(
        "A bad password",
        "it was changed on the brokers, and the connections have ended",
        bad_password,
        mended,
        sasl("PLAIN", sasl_username="shop", sasl_password="secret"),
        over_s=20.0,
        cluster={"sasl_mechanisms": ["PLAIN"], "users": {"shop": "secret"}},
    ),
    Outage(
        "A certificate that has expired",
        "that of the brokers, and the connections have ended",
        lambda scene: scene.reconnect_as(expired),
        reachable,
    ),
    Outage(
        "DNS is gone",
        "no name is resolved, and the connections have ended",
        lambda scene: scene.reconnect_as(nameless),
        reachable,
    ),
    Outage(
        "The coordinator is gone",
        "the brokers elect another one for a long time",
        coordinator_gone,
        coordinator_back,
        transactional,
        in_transactions=True,
    ),
    Outage(
        "Fenced", "another instance has the same `transactional_id`", fenced, None, transactional, in_transactions=True
    ),
    Outage(
        "A transaction whose end is unknown",
        "EndTxn is not answered",
        unknown_end,
        mended,
        transactional,
        over_s=40.0,
        in_transactions=True,
    ),
    Outage(
        "A loop that is blocked",
        "a call of the program does not return for 10 s",
        blocked,
        None,
        end_text="it is over when the line is written",
    ),
)


async def service(scene: Scene, outage: Outage) -> None:
    """Send a record each second, for ever: fire and forget, or in a transaction."""
    while True:
        if outage.in_transactions:
            try:
                async with asyncio.timeout(20), scene.producer.transaction():
                    scene.producer.send(scene.topic, scene.value)
            except (AiokprodError, TimeoutError):
                pass  # the service tries again
        else:
            try:
                scene.producer.send(scene.topic, scene.value)
            except AiokprodError:
                pass  # no room, or the producer has failed
        await asyncio.sleep(1)
