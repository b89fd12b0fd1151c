"""Methods of other clients, by name: what a producer answers where its own is called otherwise. A table and a descriptor.

Descriptors in the class, and no `__getattr__`: with that one each `producer.send` would be looked up the slow way.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Foreign(NamedTuple):
    """A method of other clients."""

    clients: str
    ours: str
    """what to write here instead"""


_TRANSACTIONS = "transactions are not there yet"
_CLIENTS: Final = "aiokafka, confluent-kafka and kafka-python"
NAMES: Final = {
    "stop": Foreign("aiokafka", "await producer.close(), or `async with Producer(...)`"),
    "send_and_wait": Foreign("aiokafka", "await producer.send(...), which waits for the acknowledgement"),
    "create_batch": Foreign("aiokafka", "await producer.send_many(...): batches are made inside"),
    "send_batch": Foreign("aiokafka", "await producer.send_many(...): batches are made inside"),
    "client": Foreign("aiokafka", "producer.health(), producer.partitions_for(...)"),
    "produce": Foreign("confluent-kafka", "producer.send(...); await it, or give it add_done_callback()"),
    "poll": Foreign("confluent-kafka", "nothing is polled: the event loop serves callbacks"),
    "purge": Foreign("confluent-kafka", "await producer.close(0), or recall() of a Delivery"),
    "list_topics": Foreign("confluent-kafka", "await producer.partitions_for(topic)"),
    "set_sasl_credentials": Foreign("confluent-kafka", "a producer with other options"),
    "bootstrap_connected": Foreign("kafka-python", "producer.health()"),
    "begin_transaction": Foreign(_CLIENTS, _TRANSACTIONS),
    "commit_transaction": Foreign(_CLIENTS, _TRANSACTIONS),
    "abort_transaction": Foreign(_CLIENTS, _TRANSACTIONS),
    "send_offsets_to_transaction": Foreign(_CLIENTS, _TRANSACTIONS),
    "init_transactions": Foreign("confluent-kafka and kafka-python", _TRANSACTIONS),
    "transaction": Foreign("aiokafka", _TRANSACTIONS),
}


class ForeignCall:
    """A name that a producer does not have: looking it up there raises an AttributeError that names ours.

    Of the class it is this object itself, as tools ask a class for everything that `dir` lists; it cannot be called.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, producer: object, owner: type) -> Any:
        if producer is None:
            return self
        raise AttributeError(f"{owner.__name__} has no {self._told()}")

    def _told(self) -> str:
        clients, ours = NAMES[self._name]
        return f"{self._name!r}, which is a name of {clients}: {ours}"

    def __repr__(self) -> str:
        return f"<no {self._told()}>"


class ForeignCalls:
    """The base of what answers so."""

    def __dir__(self) -> list[str]:
        """Without what is only answered: completion in a shell offers what is there."""
        return [name for name in super().__dir__() if not isinstance(_in_class(type(self), name), ForeignCall)]


def _in_class(kind: type, name: str) -> object:
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)


for _name in NAMES:
    setattr(ForeignCalls, _name, ForeignCall(_name))  # so type checkers go on to know that the names are not there
