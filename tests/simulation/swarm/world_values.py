"""A world as plain data: what is drawn from a seed, and then played. JSON in and out, so a shrunk one can be kept."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

Args = dict[str, Any]
OF_THE_PROCESS = ("strike", "deep", "interrupt", "threads")
"""Operations that are faults of the process."""


@dataclass(slots=True)
class Step:
    """An operation on the producer, or a fault.

    Attributes:
        at: seconds since the world began.
        hops: turns of the loop that pass between that moment and the step.
        on: a fault only: it is not done at that moment but when the next request of this API is served after it,
            `lag` seconds later.
    """

    at: float
    kind: str
    args: Args = field(default_factory=dict)
    hops: int = 0
    on: str = ""
    lag: float = 0.0

    def __str__(self) -> str:
        shown = " ".join(f"{name}={value!r}" for name, value in self.args.items() if value is not None)
        when = f" when a {self.on} request is served, {self.lag:g} s later" if self.on else ""
        turns = f" (+{self.hops} turns)" if self.hops else ""
        return f"{self.at:10.4f} s{turns}{when}  {self.kind} {shown}".rstrip()


@dataclass(slots=True)
class World:
    """All that makes a run.

    Attributes:
        seed: of the schedule: latencies, the order of callbacks, jitter.
        shuffled: ready callbacks run in a drawn order.
        options: of the producers.
        weather: latency_s (least and most), turn_cost_s (what a turn of the loop takes).
        cluster: arguments of the MockCluster.
        topics: those there are from the beginning: name, partitions, and options of the topic.
        hooks: serializer, partitioner, interceptor, on_delivery_error, callback: what each of them does.
        producers: how many.
        operations, faults: in any order.
        end: how it ends: settle_s, heal (before or after closing), flush, close_timeout, how, alive (when liveness is judged).
    """

    seed: int
    shuffled: bool = True
    options: Args = field(default_factory=dict)
    weather: Args = field(default_factory=dict)
    cluster: Args = field(default_factory=dict)
    topics: list[Args] = field(default_factory=list)
    hooks: Args = field(default_factory=dict)
    producers: int = 1
    operations: list[Step] = field(default_factory=list)
    faults: list[Step] = field(default_factory=list)
    end: Args = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the world as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> World:
        """Return the world that `to_json` wrote."""
        raw = json.loads(text)
        for name in ("operations", "faults"):
            raw[name] = [Step(**step) for step in raw[name]]
        return cls(**raw)

    @property
    def length_s(self) -> float:
        """Return the moment of the last step."""
        return max((step.at for step in (*self.operations, *self.faults)), default=0.0)

    @property
    def is_transactional(self) -> bool:
        """Return whether its producers write in transactions."""
        return "transactional_id" in self.options

    @property
    def has_process_faults(self) -> bool:
        """Return whether faults of the process are drawn (process.py)."""
        return "log" in self.hooks or any(step.kind in OF_THE_PROCESS for step in self.operations)

    @property
    def may_be_healed(self) -> bool:
        """Return whether an exception may come between two lines of an alarm: the watch sets right what it leaves."""
        return any(
            step.kind == "strike" or (step.kind == "interrupt" and step.args["act"] == "raise")
            for step in self.operations
        )

    @property
    def is_calm(self) -> bool:
        """Return whether nothing has a fault and all records have a partition."""
        there = {topic["name"]: topic["partitions"] for topic in self.topics if not topic.get("late")}
        is_well = not self.faults and not self.has_process_faults
        return is_well and all(self._has_place(step.args, there) for step in self.operations)

    @staticmethod
    def _has_place(args: Args, there: dict[str, int]) -> bool:
        topic = args.get("topic")
        if topic is None or not ("size" in args or "source" in args):
            return True
        places = [args.get("partition"), args.get("first_partition"), *(args.get("partitions") or ())]
        return topic in there and all(place < there[topic] for place in places if isinstance(place, int))

    def __str__(self) -> str:
        parts = [
            f"world {self.seed}{'' if self.shuffled else ' (callbacks in their order)'}",
            f"options {self.options}",
            f"cluster {self.cluster} topics {self.topics} weather {self.weather}",
            f"hooks {self.hooks} producers {self.producers} end {self.end}",
        ]
        steps = [(step.at, f"{step}") for step in self.operations]
        steps += [(step.at, f"{step}   <- fault") for step in self.faults]
        return "\n".join([*parts, *(text for _, text in sorted(steps, key=lambda pair: pair[0]))])


@dataclass(slots=True)
class Wrong:
    """One finding: its kind tells findings apart, its text tells this one."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(slots=True)
class Run:
    """The outcome of a played world.

    Attributes:
        outcomes: of its transactions, by their names.
        drawn_next: by the loop and by its threads, after the end: the same only if as much was drawn before.
    """

    world: World
    wrongs: list[Wrong] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    records: int = 0
    delivered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    virtual_s: float = 0.0
    drawn_next: list[float] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        """Return the kinds of its findings."""
        return {wrong.kind for wrong in self.wrongs}

    @property
    def story(self) -> str:
        """The world and its events, as a text."""
        return "\n".join([str(self.world), "-- what happened", *self.events, *(f"WRONG {w}" for w in self.wrongs)])
