"""`Nemesis`: the default random fault injector of a cluster in virtual time. One per cluster and run.

A correct producer survives all its faults: none refuses a record for good, none loses an acknowledged record, and all are
repaired after `LONGEST_S` of virtual time at the latest. `story` lists the faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from random import Random
from typing import Final

from aiokprod.testing.faults import Rule
from aiokprod.testing.mock import MockCluster
from aiokprod.testing.virtual.network import VirtualNetwork

LONGEST_S: Final = 15.0
"""Seconds from the first fault to the last recovery: WINDOW_S and LONGEST_OUTAGE_S."""
WINDOW_S: Final = 10.0
LONGEST_OUTAGE_S: Final = 5.0
MOST_SWALLOWED: Final = 2
"""Each costs a producer a whole request.timeout.ms (30 s), and it has delivery.timeout.ms (120 s)."""

RETRIABLE: Final = (
    "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_ID",
)  # fmt: skip
APPENDED: Final = ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER")
"""What a broker may say of a batch that is in the log all the same (broker: 6.1, 6.4)."""


class Nemesis:
    """A random fault injector, which repairs what it broke.

    Args:
        kinds: the kinds of faults to draw from, some of `KINDS`.
    """

    KINDS: Final = ("answers", "brokers", "errors", "leaders", "network")

    def __init__(
        self,
        cluster: MockCluster,
        network: VirtualNetwork,
        random: Random,
        kinds: Collection[str] = KINDS,
    ) -> None:
        unknown = set(kinds) - set(self.KINDS)
        if unknown:
            raise ValueError(f"no such faults: {', '.join(sorted(unknown))}; there are {', '.join(self.KINDS)}")
        self.story: list[str] = []
        self._cluster = cluster
        self._network = network
        self._random = random
        self._rules: list[Rule] = []  # what waits for its request
        self._swallowed = 0
        self._down: set[int] = set()
        self._leaderless: set[tuple[str, int]] = set()
        self._faults = [fault for kind, faults in self._all().items() if kind in kinds for fault in faults]

    def _all(self) -> dict[str, list[Callable[[], str | None]]]:
        return {
            "answers": [self._drop, self._drop, self._swallow, self._omit, self._delay, self._no_metadata],
            "brokers": [self._stop, self._kill],
            "errors": [self._fail, self._fail, self._fail, self._throttle, self._no_identity],
            "leaders": [self._move, self._move, self._late_and_moved, self._no_leader, self._fall_behind],
            "network": [self._silence, self._reset, self._close],
        }

    async def run(self) -> None:
        """Inject faults for a while; ends by itself."""
        if not self._faults:
            return
        random, loop = self._random, asyncio.get_running_loop()
        until = loop.time() + WINDOW_S
        pace_s = random.choice([0.0005, 0.005, 0.05, 0.5])  # a short test is met as well as a long one
        for _ in range(random.choice([1, 2, 4, 8, 20])):
            await asyncio.sleep(random.choice([0.0, 0.0, random.uniform(0.0, pace_s), random.uniform(0.0, 3 * pace_s)]))
            if loop.time() >= until:
                break
            fault = random.choice(self._faults)()
            if fault is not None:
                self._tell(fault)
        await asyncio.sleep(LONGEST_OUTAGE_S)
        self._end_script()

    def heal(self) -> None:
        """Repair at once what is still broken."""
        self._end_script()
        for node in sorted(self._down):
            self._start(node)
        for topic, partition in sorted(self._leaderless):
            self._lead(topic, partition)

    # ------------------------------------------------------------------ what there is
    def _script(self, rule: Rule) -> None:
        self._rules.append(rule)

    def _end_script(self) -> None:
        for rule in self._rules:
            rule.cancel()
        self._rules.clear()

    def _tell(self, fault: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():9.4f} s  {fault}")

    def _later(self, seconds: float, mend: Callable[..., object], *of: object) -> None:
        asyncio.get_running_loop().call_later(seconds, mend, *of)

    def _outage_s(self) -> float:
        return self._random.choice([0.002, 0.05, 0.5, 2.0])

    def _up(self) -> list[int]:
        return [node for node in self._cluster.broker_ids if node not in self._down]

    def _somewhere(self) -> tuple[str, int] | None:
        partitions = [(topic, index) for topic, count in self._cluster.topics.items() for index in range(count)]
        return self._random.choice(partitions) if partitions else None

    # ------------------------------------------------------------------ answers and errors
    def _fail(self) -> str:
        after_append = self._random.random() < 0.3
        code = self._random.choice(APPENDED if after_append else RETRIABLE)
        times = self._random.choice([1, 1, 2, 4])
        self._script(self._cluster.fail_next("Produce", code, after_append=after_append, times=times))
        return f"{times} x {code} for a Produce{', which is appended' if after_append else ''}"

    def _no_identity(self) -> str:
        self._script(self._cluster.fail_next("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"))
        return "COORDINATOR_LOAD_IN_PROGRESS for an InitProducerId"

    def _throttle(self) -> str:
        milliseconds = self._random.choice([10, 500])
        self._script(self._cluster.throttle_next("Produce", milliseconds))
        return f"a Produce is throttled for {milliseconds} ms"

    def _drop(self) -> str:
        after_append = self._random.random() < 0.7
        self._script(self._cluster.drop_answer("Produce", after_append=after_append))
        return (
            f"a connection is lost instead of an answer to a Produce {'after' if after_append else 'before'} the append"
        )

    def _swallow(self) -> str | None:
        if self._swallowed == MOST_SWALLOWED:
            return None
        self._swallowed += 1
        self._script(self._cluster.swallow_next("Produce"))
        return "a Produce is carried out and never answered"

    def _omit(self) -> str | None:
        if (found := self._somewhere()) is None:
            return None
        self._script(self._cluster.omit_partition("Produce", *found))
        return f"an answer to a Produce leaves {_name(*found)} out"

    def _delay(self) -> str:
        seconds = self._random.choice([0.01, 0.3, 3.0])
        before = self._random.random() < 0.5
        self._script(self._cluster.delay_next("Produce", seconds, before_serving=before))
        return f"a Produce takes {seconds} s {'until it is served' if before else 'after it is served'}"

    def _no_metadata(self) -> str:
        times = self._random.choice([1, 3])
        self._script(self._cluster.drop_answer("Metadata", times=times))
        return f"{times} x a connection is lost instead of an answer to a Metadata"

    # ------------------------------------------------------------------ leaders
    def _move(self) -> str | None:
        if (found := self._somewhere()) is None or found in self._leaderless:
            return None
        replicas = [node for node in self._cluster.partition(*found).replicas if node in self._up()]
        if not replicas:
            return None
        node = self._random.choice(replicas)
        self._cluster.move_leader(*found, node)
        return f"broker {node} leads {_name(*found)}"

    def _late_and_moved(self) -> str | None:
        """Delay answers of a leader, and move the leadership before they come."""
        if (found := self._somewhere()) is None or found in self._leaderless:
            return None
        leader, seconds = self._cluster.leader(*found), self._random.choice([0.02, 0.2])
        if leader is None:
            return None
        self._script(self._cluster.delay_next("Produce", seconds, broker=leader, times=self._random.choice([1, 3])))
        self._later(self._random.random() * seconds, self._tell_of, self._move)
        return f"broker {leader} owes answers for {seconds} s"

    def _tell_of(self, inject: Callable[[], str | None]) -> None:
        if (done := inject()) is not None:
            self._tell(done)

    def _no_leader(self) -> str | None:
        found = self._somewhere()
        if found is None or found in self._leaderless or self._cluster.leader(*found) is None:
            return None
        self._leaderless.add(found)
        self._cluster.move_leader(*found, None)
        seconds = self._outage_s()
        self._later(seconds, self._lead, *found)
        return f"{_name(*found)} has no leader for {seconds} s"

    def _lead(self, topic: str, partition: int) -> None:
        if (topic, partition) not in self._leaderless:
            return
        self._leaderless.discard((topic, partition))
        if topic not in self._cluster.topics or self._cluster.leader(topic, partition) is not None:
            return
        isr = [node for node in self._cluster.partition(topic, partition).isr if node in self._up()]
        if isr:  # else the broker that comes back leads
            self._cluster.move_leader(topic, partition, isr[0])

    def _fall_behind(self) -> str | None:
        if (found := self._somewhere()) is None:
            return None
        seconds = self._outage_s()
        self._cluster.freeze_replicas(*found)
        self._later(seconds, self._catch_up, *found)
        return f"the followers of {_name(*found)} fall behind for {seconds} s"

    def _catch_up(self, topic: str, partition: int) -> None:
        if topic in self._cluster.topics:
            self._cluster.thaw_replicas(topic, partition)

    # ------------------------------------------------------------------ brokers and network
    def _stop(self) -> str | None:
        return self._take_down(self._cluster.stop_broker, "stops")

    def _kill(self) -> str | None:
        # What only the leader had was not acknowledged to acks=all.
        return self._take_down(lambda node: self._cluster.kill_broker(node, lose_uncopied=True), "is killed")

    def _take_down(self, take_down: Callable[[int], None], verb: str) -> str | None:
        up = self._up()
        if len(up) < min(2, len(self._cluster.broker_ids)):
            return None
        node, seconds = self._random.choice(up), self._outage_s()
        self._down.add(node)
        take_down(node)
        self._later(seconds, self._start, node)
        return f"broker {node} {verb} and is back after {seconds} s"

    def _start(self, node: int) -> None:
        if node in self._down:
            self._down.discard(node)
            self._cluster.start_broker(node)

    def _port(self) -> int:
        return self._cluster.broker(self._random.choice(self._cluster.broker_ids)).port

    def _silence(self) -> str:
        port, seconds = self._port(), self._random.choice([0.1, 1.0, LONGEST_OUTAGE_S])
        self._network.silence(port, seconds)
        return f"nothing passes to or from port {port} for {seconds} s"

    def _reset(self) -> str | None:
        # Only the cluster's connections: a test may have others.
        every = [self._cluster.broker(node).port for node in self._cluster.broker_ids]
        chosen = [self._random.choice(every)] if self._random.random() < 0.7 else every
        ends = sum(self._network.reset(port) for port in chosen)
        return f"{ends // 2} connections are reset" if ends else None

    def _close(self) -> str | None:
        count = self._cluster.close_connections(abort=self._random.random() < 0.5)
        return f"the brokers close {count} connections" if count else None


def _name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"
