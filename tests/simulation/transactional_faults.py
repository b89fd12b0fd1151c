"""The faults of transactional worlds: those of every world, and those of coordinators, markers and single records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from world import TOPIC, World

IN = "in"
RETRIABLE_OF = {
    "EndTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS",
               "UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT"),
    "AddPartitionsToTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
                           "CONCURRENT_TRANSACTIONS", "UNKNOWN_TOPIC_OR_PARTITION"),
    "AddOffsetsToTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
                        "CONCURRENT_TRANSACTIONS"),
    "InitProducerId": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
                       "CONCURRENT_TRANSACTIONS"),
    "TxnOffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
                        "UNKNOWN_TOPIC_OR_PARTITION"),
    "FindCoordinator": ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
}  # fmt: skip
"""What coordinators say while something is on its way."""

ENDING = ("EndTxn", "EndTxn", "EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "InitProducerId",
          "FindCoordinator")  # fmt: skip
"""APIs of coordinators, those at the end of a transaction more often."""


def group_of(name: str) -> str:
    """Return the consumer group whose offsets this transactional id commits."""
    return f"group-{name}"


class TransactionalFaults(World):
    """A world whose coordinators fail, too."""

    ids: list[str]

    def _faults(self) -> list[Callable[[], str]]:
        # Brokers do not forget producers of open transactions; an epoch that is said to be old ends a producer for good.
        usual = [fault for fault in super()._faults() if fault not in (self._forget, self._old_identity)]
        return [
            *usual,
            self._fail_coordinator, self._fail_coordinator, self._lose_answer, self._lose_answer, self._lose_answer,
            self._late, self._silent, self._silent, self._move_coordinator, self._move_coordinator, self._load,
            self._hold_markers, self._refuse_record, self._concurrent,
        ]  # fmt: skip

    def _api(self) -> str:
        return self.random.choice(ENDING)

    def _fail_coordinator(self) -> str:
        api, times = self._api(), self.random.choice([1, 1, 2, 4])
        code = self.random.choice(RETRIABLE_OF[api])
        self.cluster.fail_next(api, code, times=times)
        return f"{times} answers to {api} say {code}"

    def _lose_answer(self) -> str:
        api, after = self._api(), self.random.random() < 0.7
        self.cluster.drop_answer(api, after_append=after, reset=self.random.random() < 0.5)
        return f"the answer to {api} is lost, {'after' if after else 'before'} it is carried out"

    def _late(self) -> str:
        api, seconds, before = self._api(), self.random.choice([0.05, 0.4, 4.0]), self.random.random() < 0.5
        self.cluster.delay_next(api, seconds, before_serving=before)
        return f"{api} takes {seconds} s {'before' if before else 'after'} it is carried out"

    def _silent(self) -> str:
        api, before = self._api(), self.random.random() < 0.5
        self.cluster.blackhole_next(api, before_serving=before)
        return f"{api} is never answered, and {'never' if before else 'is'} carried out"

    def _move_coordinator(self) -> str:
        node = self.random.choice([node for node in self.cluster.broker_ids if node not in self.down])
        name = self.random.choice(self.ids)
        if self.random.random() < 0.3:
            self.cluster.move_group_coordinator(group_of(name), node)
            return f"broker {node} is the coordinator of the group of {name}"
        self.cluster.move_coordinator(name, node)
        return f"broker {node} is the coordinator of {name}"

    def _load(self) -> str:
        name, seconds = self.random.choice(self.ids), self.random.choice([0.05, 1.0])
        self.cluster.load_coordinator(name)
        asyncio.get_running_loop().call_later(seconds, self.cluster.load_coordinator, name, False)
        return f"the coordinator of {name} loads for {seconds} s"

    def _hold_markers(self) -> str:
        seconds = self.random.choice([0.05, 1.0, 3.0])
        self.cluster.hold_markers()
        asyncio.get_running_loop().call_later(seconds, self.cluster.release_markers)
        return f"no markers are written for {seconds} s"

    def _refuse_record(self) -> str:
        code = self.random.choice(["INVALID_RECORD", "POLICY_VIOLATION", "TOPIC_AUTHORIZATION_FAILED"])
        self.cluster.fail_next("Produce", code, topic=TOPIC, partition=self._partition())
        return f"an answer to Produce says {code}"

    def _concurrent(self) -> str:
        times = self.random.choice([1, 3])
        self.cluster.fail_next("Produce", "CONCURRENT_TRANSACTIONS", times=times)
        return f"{times} answers to Produce say CONCURRENT_TRANSACTIONS"
