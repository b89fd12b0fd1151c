"""Faults of a world: each kind is a method, its arguments are the step's. What is broken is mended by `heal` at the latest."""

from __future__ import annotations

from typing import Any

from aiokprod.testing.faults import Rule

from .scene import Scene
from .world_values import Step


class Trouble:
    """The faults that the world says."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.cluster = scene.cluster
        self.down: set[int] = set()
        self.frozen: set[int] = set()
        self.loaded: set[str] = set()
        self.is_healed = False

    def act(self, step: Step) -> None:
        """Take the step, or wait for the request that sets it off."""
        if self.is_healed:
            return
        if step.on:
            if step.args.get("late_s"):
                self._be_late(step.args["topic"], step.args["partition"], step.args["late_s"])
            self.cluster.on_request(step.on, lambda: self._set_off(step))
        else:
            self.do(step)

    def _set_off(self, step: Step) -> None:
        if step.lag or step.hops:
            self.scene.later(step.lag, self.scene.hop, step.hops, self.do, step)
        else:
            self.do(step)  # before the request is served

    def do(self, step: Step) -> None:
        """Carry out the step now."""
        if self.is_healed:
            return
        done = getattr(self, f"_{step.kind}")(**step.args)
        self.scene.tell(f"fault: {step.kind} {step.args}{'' if done is None else f' {done}'}")

    # ------------------------------------------------------------------ answers
    def _fail(self, code: str, api: str = "Produce", **where: Any) -> None:
        rule = self.cluster.fail_next(api, code, **where)
        if code == "TOPIC_AUTHORIZATION_FAILED" and api == "Metadata":
            self.scene.refusals[rule] = self.scene.now()

    def _verb(self, name: str, api: str | None, *given: Any, **where: Any) -> Rule:
        rule = getattr(self.cluster, name)(api, *given, **where)
        assert isinstance(rule, Rule)
        return rule

    def _drop(self, api: str, **where: Any) -> None:
        self._verb("drop_answer", api, **where)

    def _damage(self, verb: str, api: str, given: list[Any], **where: Any) -> None:
        self._verb(verb, api, *given, **where)

    def _hold(self, api: str, seconds: float, **where: Any) -> None:
        rule = self._verb("hold", api, **where)
        self.scene.later(seconds, self.cluster.release, rule)

    def _omit(self, topic: str, partition: int, **where: Any) -> None:
        self.cluster.omit_partition("Produce", topic, partition, **where)

    def _refuse_next(self, times: int) -> None:
        self.cluster.refuse_next(None, times=times)

    # ------------------------------------------------------------------ connections
    def _refuse(self, node: int, seconds: float) -> None:
        self.cluster.refuse_connections(node)
        self.cluster.close_connections(node, abort=True)
        self.scene.later(seconds, self._allow, node)

    def _allow(self, node: int) -> None:
        if node not in self.down:
            self.cluster.allow_connections(node)

    def _freeze(self, node: int, seconds: float) -> None:
        self.cluster.freeze_broker(node)
        self.frozen.add(node)
        self.scene.later(seconds, self._thaw, node)

    def _thaw(self, node: int) -> None:
        if node in self.frozen:
            self.frozen.discard(node)
            self.cluster.thaw_broker(node)

    def _silence(self, node: int, seconds: float) -> None:
        self.scene.network.silence(self.cluster.broker(node).port, seconds)

    def _reset(self, node: int | None) -> str:
        port = None if node is None else self.cluster.broker(node).port
        return f"{self.scene.network.reset(port)} ends"

    def _close_connections(self, node: int | None, abort: bool) -> str:
        return f"{self.cluster.close_connections(node, abort=abort)} connections"

    # ------------------------------------------------------------------ brokers and leaders
    def _up(self) -> list[int]:
        return [node for node in self.cluster.broker_ids if node not in self.down]

    def _kill(self, node: int, seconds: float, elect: bool = True) -> str | None:
        return self._take_down(node, seconds, lambda: self.cluster.kill_broker(node, elect=elect, lose_uncopied=True))

    def _stop(self, node: int, seconds: float) -> str | None:
        return self._take_down(node, seconds, lambda: self.cluster.stop_broker(node))

    def _take_down(self, node: int, seconds: float, fault: Any) -> str | None:
        if node in self.down:
            return "is down already"
        self._thaw(node)
        self.down.add(node)
        fault()
        self.scene.later(seconds, self._start, node)
        return None

    def _start(self, node: int) -> None:
        if node in self.down:
            self.down.discard(node)
            self.cluster.start_broker(node)

    def _move(self, topic: str, partition: int, by: int) -> str:
        if not 0 <= partition < self.scene.partitions_of(topic):
            return "no such partition"
        replicas = [node for node in self.cluster.partition(topic, partition).replicas if node in self._up()]
        if not replicas:
            return "no replica is up"
        leader = self.cluster.leader(topic, partition)
        at = replicas.index(leader) if leader in replicas else 0
        node = replicas[(at + by) % len(replicas)]
        self.cluster.move_leader(topic, partition, node)
        return f"to {node}"

    def _leaderless(self, topic: str, partition: int, seconds: float) -> str | None:
        if not 0 <= partition < self.scene.partitions_of(topic):
            return "no such partition"
        self.cluster.move_leader(topic, partition, None)
        self.scene.later(seconds, self._lead, topic, partition)
        return None

    def _lead(self, topic: str, partition: int) -> None:
        if partition >= self.scene.partitions_of(topic) or self.cluster.leader(topic, partition) is not None:
            return
        isr = [node for node in self.cluster.partition(topic, partition).isr if node in self._up()]
        if isr:
            self.cluster.move_leader(topic, partition, isr[0])

    def _late_and_moved(
        self, topic: str, partition: int, seconds: float, share: float, by: int, times: int
    ) -> str | None:
        if not 0 <= partition < self.scene.partitions_of(topic):
            return "no such partition"
        leader = self.cluster.leader(topic, partition)
        if leader is not None:
            self.cluster.delay_next("Produce", seconds, broker=leader, times=times)
            self.scene.later(share * seconds, self._move, topic, partition, by)
        return None

    def _shrink(self, topic: str, partition: int, seconds: float) -> None:
        if 0 <= partition < self.scene.partitions_of(topic):
            self.cluster.freeze_replicas(topic, partition)
            self.scene.later(seconds, self._catch_up, topic, partition)

    def _catch_up(self, topic: str, partition: int) -> None:
        if partition < self.scene.partitions_of(topic):
            self.cluster.thaw_replicas(topic, partition)

    def _be_late(self, topic: str, partition: int, seconds: float) -> None:
        """Delay answers, so that something is in flight when the leader dies."""
        if 0 <= partition < self.scene.partitions_of(topic):
            leader = self.cluster.leader(topic, partition)
            self.cluster.delay_next("Produce", seconds, broker=leader, times=5)

    def _move_and_reset(
        self, topic: str, partition: int, by: int, lag: float, turns: int, late_s: float | None = None
    ) -> str:
        """Let another broker lead, and reset the connections of the old leader a moment later."""
        if not 0 <= partition < self.scene.partitions_of(topic):
            return "no such partition"
        leader = self.cluster.leader(topic, partition)
        reset = Step(self.scene.now(), "reset", {"node": leader})
        if leader is not None:
            self.scene.later(lag, self.scene.hop, turns, self.do, reset)
        return self._move(topic, partition, by)

    # ------------------------------------------------------------------ topics
    def _create(self, topic: str, partitions: int) -> None:
        self.scene.create_topic(topic, partitions, {})

    def _grow(self, topic: str, more: int, unseen: int = 0) -> None:
        """Add partitions. `unseen`: so many transient errors about the topic, for which sends then wait instead."""
        if unseen and self.scene.partitions_of(topic):
            self._fail("LEADER_NOT_AVAILABLE", "Metadata", topic=topic, times=unseen)
        self.scene.grow_to(topic, self.scene.partitions_of(topic) + more)

    def _delete(self, topic: str, seconds: float, partitions: int | None = None) -> None:
        count = self.scene.partitions_of(topic)
        if count:
            self.scene.bury(topic)
            self.cluster.delete_topic(topic)
            self.scene.note_topic(topic, "deleted", 0)
            self.scene.later(seconds, self.scene.create_topic, topic, partitions or count, {})

    def _recreate(self, topic: str, partitions: int | None = None) -> None:
        if self.scene.partitions_of(topic):
            self.scene.bury(topic)
            self.scene.note_topic(topic, "deleted", 0)
            self.cluster.recreate_topic(topic, partitions)
            self.scene.note_topic(topic, "made", self.scene.partitions_of(topic))

    def _alter(self, topic: str, config: dict[str, Any]) -> None:
        if self.scene.partitions_of(topic):
            self.cluster.alter_topic(topic, **config)

    # ------------------------------------------------------------------ coordinators of transactions
    def _move_coordinator(self, key: str, group: str | None = None) -> str:
        if not self._up():
            return "no broker is up"
        node = self._up()[len(self.scene.books.accounts) % len(self._up())]
        if group is not None:
            self.cluster.move_group_coordinator(group, node)
        else:
            self.cluster.move_coordinator(key, node)
        return f"to {node}"

    def _load_coordinator(self, key: str, seconds: float) -> None:
        self.cluster.load_coordinator(key)
        self.loaded.add(key)
        self.scene.later(seconds, self.cluster.load_coordinator, key, False)

    def _hold_markers(self, seconds: float) -> None:
        self.cluster.hold_markers()
        self.scene.later(seconds, self.cluster.release_markers)

    # ------------------------------------------------------------------ the end
    def heal(self) -> None:
        """End all faults."""
        if self.is_healed:
            return
        self.is_healed = True
        silences_end = (
            self.scene.network.silent_until(self.cluster.broker(node).port) for node in self.cluster.broker_ids
        )
        self.scene.healed_at = max([self.scene.now(), *silences_end])
        self.cluster.clear_faults()
        self.cluster.release_markers()
        for key in sorted(self.loaded):
            self.cluster.load_coordinator(key, False)
        for node in list(self.frozen):
            self._thaw(node)
        for node in sorted(self.down):
            self._start(node)
        for node in self.cluster.broker_ids:
            self.cluster.allow_connections(node)
        for topic in self.scene.world.topics:
            self.scene.create_topic(topic["name"], topic["partitions"], topic.get("config", {}))
        for name, count in self.cluster.topics.items():
            for partition in range(count):
                self.cluster.thaw_replicas(name, partition)
                if self.cluster.leader(name, partition) is None:
                    self._lead(name, partition)
        self.scene.tell("everything is well again")
