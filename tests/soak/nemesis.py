"""The nemesis of a soak: does what the plan says to brokers, leaders, network, clients and topics, and heals each fault.

One per soak. Rounds one after another on the caller's thread, the faults of a mixture on threads of their own. What needs
the cluster's admin connections holds a lock: they are not for many threads.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

from certificates import Certificates
from changes import Changes
from clients import Client
from evidence import Done
from network import busy_node, harm
from plan import CLASS, NEW_TOPIC_EVERY_S, Injection, Plan, Round
from profiles import CYCLE, GROWING, MANY, ONE, SIX, TOPICS

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster.admin import PartitionState
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError

MOST_PARTITIONS = 24
STOP_S = 20.0  # a broker that hangs in its shutdown, as the last ones do without a majority, is killed then
SHRUNK_S = 20.0


class Nemesis:
    """An injector of faults, until the time is over."""

    def __init__(
        self,
        cluster: KafkaCluster,
        clients: Sequence[Client],
        plan: Plan,
        certificates: Certificates,
        pause: Callable[[float], object] = time.sleep,
        copiers: Sequence[Client] = (),
    ) -> None:
        self.done: list[Done] = []
        self._cluster = cluster
        self._clients = clients
        self._processes = [*clients, *copiers]
        self._plan = plan
        self._pause = pause
        self._admin_lock = threading.Lock()
        self._new_topics: list[str] = []
        self._stop = threading.Event()
        self._changes = Changes(cluster, self._processes, certificates, self._admin_lock, pause)
        self._work: dict[str, Callable[[Injection, Done], None]] = {
            "kill": self._kill,
            "terminate": self._terminate,
            "freeze": self._freeze,
            "kill controller": self._kill_controller,
            "shrink isr": self._shrink,
            "kill two": lambda injection, done: self._down(done, self._some(injection, 2), injection.seconds),
            "kill all": lambda injection, done: self._down(done, self._some(injection, 3), injection.seconds),
            "terminate two": lambda injection, done: self._stop_some(done, self._some(injection, 2), injection.seconds),
            "terminate all": lambda injection, done: self._stop_some(done, self._some(injection, 3), injection.seconds),
            "freeze two": lambda injection, done: self._frost(done, self._some(injection, 2), injection.seconds),
            "freeze all": lambda injection, done: self._frost(done, self._some(injection, 3), injection.seconds),
            "shuffle leaders": self._shuffle,
            "elect preferred": self._elect,
            "freeze client": self._freeze_client,
            "block loop": self._block_loop,
            "kill client": self._kill_client,
            "new topic": self._new_topic,
            "grow topic": self._grow,
            "make topic again": self._make_again,
        } | self._changes.work

    @property
    def topics(self) -> list[str]:
        """All topics that exist so far."""
        return [*TOPICS, *self._new_topics]

    def run(self, seconds: float) -> None:
        """Run rounds for so many seconds; everything is healed when this returns."""
        began = time.monotonic()
        regular = 0
        while (share := (time.monotonic() - began) / seconds) < 1.0:
            if time.monotonic() - began >= (regular + 1) * NEW_TOPIC_EVERY_S:
                regular += 1
                self._round(self._plan.regular())
            self._round(self._plan.next_round(share))
        self.heal()

    def _round(self, step: Round) -> None:
        self._stop.wait(step.gap_s)
        threads = [
            threading.Thread(target=self._do, args=(injection,), name=injection.kind) for injection in step.injections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def heal(self) -> None:
        """Run every broker, hold nothing, and wait until all replicas are in sync."""
        for proxy in self._cluster.proxies.values():
            proxy.clear_faults()
            for node in self._cluster.brokers:
                proxy.allow_connections(node)
                proxy.set_distance(node, None)
        self._revive()
        self._cluster.wait_ready()
        self._changes.heal()
        for topic in self.topics:
            self._cluster.wait_all_in_sync(topic)

    def _revive(self) -> None:
        for broker in self._cluster.brokers.values():
            with contextlib.suppress(KafkaClusterError):  # one that is stopped has nothing to resume
                broker.resume()
            broker.start(wait=False)

    def _do(self, injection: Injection) -> None:
        done = Done(kind=injection.kind, text=injection.kind, began=time.monotonic())
        self.done.append(done)
        try:
            work = self._work.get(injection.kind, self._network)
            if CLASS[injection.kind] == "cluster":
                with self._admin_lock:
                    work(injection, done)
            else:
                work(injection, done)
        except (KafkaClusterError, OSError) as failure:  # the injection failed, not the soak
            done.failure = f"{type(failure).__name__}: {str(failure)[:200]}"
            if CLASS[injection.kind] == "cluster":
                with self._admin_lock:
                    self._revive()
        except Exception:  # a bug of ours: the verdict tells it
            done.failure, done.is_bug = traceback.format_exc(), True
        finally:
            done.settled = time.monotonic()
            done.healed = done.healed or done.settled
            print(
                f"  {done.settled - done.began:6.1f} s  {done.text}{'  FAILED ' + done.failure if done.failure else ''}"
            )

    # Brokers.

    def _some(self, injection: Injection, count: int) -> list[int]:
        return random.Random(injection.seed).sample(sorted(self._cluster.brokers), count)

    def _kill(self, injection: Injection, done: Done) -> None:
        self._down(done, [injection.node], injection.seconds)

    def _down(self, done: Done, nodes: list[int], seconds: float) -> None:
        done.text = f"kill -9 {nodes}, down {seconds} s"
        done.met = len(nodes)
        for node in nodes:
            self._cluster.broker(node).kill()
        self._pause(seconds)
        self._up(done, nodes)

    def _terminate(self, injection: Injection, done: Done) -> None:
        self._stop_some(done, [injection.node], injection.seconds)

    def _stop_some(self, done: Done, nodes: list[int], seconds: float) -> None:
        done.text = f"SIGTERM {nodes}, down {seconds} s"
        done.met = len(nodes)
        stops = [threading.Thread(target=self._cluster.broker(node).stop, args=(STOP_S,)) for node in nodes]
        for stop in stops:  # side by side: a controlled shutdown wants others to hand over to
            stop.start()
        for stop in stops:
            stop.join()
        self._pause(seconds)
        self._up(done, nodes)

    def _kill_controller(self, injection: Injection, done: Done) -> None:
        node = self._cluster.active_controller()
        self._down(done, [node], injection.seconds)
        now = self._cluster.active_controller()
        done.text += f"; it was the active controller, now that is {now}"
        done.met = int(now != node)

    def _shrink(self, injection: Injection, done: Done) -> None:
        """Stop a follower, and not for a time, but until a partition has gone on without it."""
        state = self._partition()
        follower = random.Random(injection.seed).choice(sorted(set(state.replicas) - {state.leader}))
        done.text = f"SIGSTOP {follower}, a follower of {ONE}-0"
        broker = self._cluster.broker(follower)
        broker.pause()
        deadline = time.monotonic() + SHRUNK_S
        while follower in self._partition().in_sync and time.monotonic() < deadline:
            self._pause(0.1)
        done.met = int(follower not in self._partition().in_sync)
        done.text += f"; in sync: {list(self._partition().in_sync)} after {time.monotonic() - done.began:.1f} s"
        self._pause(min(injection.seconds, SHRUNK_S))
        broker.resume()
        done.healed = time.monotonic()
        self._cluster.wait_ready()
        self._whole()

    def _partition(self) -> PartitionState:
        partitions = self._cluster.admin.topic(ONE)
        if not partitions:
            raise KafkaClusterError(f"no topic {ONE}")
        return partitions[0]

    def _up(self, done: Done, nodes: list[int]) -> None:
        for node in nodes:
            self._cluster.broker(node).start(wait=False)
        self._cluster.wait_ready()
        done.healed = time.monotonic()
        self._whole()

    def _freeze(self, injection: Injection, done: Done) -> None:
        self._frost(done, [injection.node], injection.seconds)

    def _frost(self, done: Done, nodes: list[int], seconds: float) -> None:
        done.text = f"SIGSTOP {nodes} for {seconds} s"
        done.met = len(nodes)
        for node in nodes:
            self._cluster.broker(node).pause()
        self._pause(seconds)
        for node in nodes:
            self._cluster.broker(node).resume()
        done.healed = time.monotonic()
        self._cluster.wait_ready()
        self._whole()

    def _whole(self) -> None:
        """Wait until all replicas are in sync: with two of three out of sync nothing can be acknowledged."""
        for topic in self.topics:
            self._cluster.wait_all_in_sync(topic)

    # Leaders.

    def _shuffle(self, injection: Injection, done: Done) -> None:
        draw = random.Random(injection.seed)
        places = [
            (ONE, 0),
            *((SIX, partition) for partition in range(6)),
            *((MANY, draw.randrange(48)) for _ in range(3)),
        ]
        done.text = f"move the leaders of {len(places)} partitions"
        done.met = len(places)
        for topic, partition in places:
            self._cluster.move_leader(topic, partition, draw.choice(sorted(self._cluster.brokers)))

    def _elect(self, injection: Injection, done: Done) -> None:
        elected = 0
        for topic in (ONE, SIX, MANY):
            for index, partition in enumerate(self._cluster.admin.topic(topic) or ()):
                if partition.leader != partition.replicas[0]:
                    self._cluster.move_leader(topic, index, partition.replicas[0])
                    elected += 1
        if not elected:  # all lead that are preferred: then prefer another one
            state = self._partition()
            self._cluster.move_leader(ONE, 0, state.replicas[-1])
            elected = 1
        done.text = f"{elected} preferred leaders elected"
        done.met = elected

    # Network and clients.

    def _network(self, injection: Injection, done: Done) -> None:
        proxies = list(self._cluster.proxies.values())
        injection = replace(injection, node=busy_node(proxies, injection.node, self._cluster.brokers, self._pause))
        done.met, of = harm(proxies, injection, self._pause)
        done.text = f"{injection.kind} (broker {injection.node}, {injection.chance:.0%}) met {done.met} {of}"

    def _process(self, injection: Injection) -> Client:
        """Return the process that a fault of clients meets: a workload or a copier."""
        return self._processes[injection.seed % len(self._processes)]

    def _freeze_client(self, injection: Injection, done: Done) -> None:
        client = self._process(injection)
        done.text = f"SIGSTOP client {client.name} for {injection.seconds} s"
        client.freeze(injection.seconds)
        done.met = 1

    def _block_loop(self, injection: Injection, done: Done) -> None:
        client = self._process(injection)
        done.text = f"block the loop of {client.name} for {injection.seconds} s"
        client.block(injection.seconds)
        done.met = 1

    def _kill_client(self, injection: Injection, done: Done) -> None:
        client = self._process(injection)
        done.text = f"kill -9 client {client.name}"
        client.kill()
        done.met = 1
        client.start()

    # Topics.

    def _new_topic(self, injection: Injection, done: Done) -> None:
        name = f"soak-new-{len(self._new_topics)}"
        partitions = random.Random(injection.seed).choice((1, 3, 12))
        done.text = f"a new topic with {partitions} partitions"
        self._clients[-1].tell(f"topic {name} {partitions}")  # first sent to, then there
        self._pause(0.5)
        self._cluster.create_topic(name, partitions)
        self._new_topics.append(name)
        done.met = partitions

    def _grow(self, injection: Injection, done: Done) -> None:
        count = len(self._cluster.leaders(GROWING)) + 1 + injection.seed % 2
        done.text = f"{GROWING} grows to {count} partitions"
        if count <= MOST_PARTITIONS:
            self._cluster.add_partitions(GROWING, count)
            self._clients[-1].tell(f"topic {GROWING} {count}")
            done.met = 1

    def _make_again(self, injection: Injection, done: Done) -> None:
        done.text = f"{CYCLE} deleted and made again"
        self._cluster.delete_topic(CYCLE)
        self._pause(min(injection.seconds, 2.0))
        self._cluster.create_topic(CYCLE, TOPICS[CYCLE])
        done.met = TOPICS[CYCLE]
