"""Calls of other Kafka clients: a name or an argument that a producer or a Delivery lacks is answered with ours.

The classes have descriptors and no `__getattr__`, which would make every `producer.send` a slow look-up.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from aiokprod.pipeline.delivery.delivery import Delivery

CallT = TypeVar("CallT", bound=Callable[..., Any])

# A class has one metaclass: that of `Protocol` derives from that of `ABC`, so a producer can be mixed with classes of both.
if TYPE_CHECKING:
    _MetaOfProtocols = ABCMeta
else:
    _MetaOfProtocols = type(Protocol)


class Foreign(NamedTuple):
    """A method of other clients."""

    clients: str
    ours: str
    """what to use instead"""


class ForeignName:
    """A name with its replacement, for a reader of the class."""

    __slots__ = ("_foreign", "_name")

    def __init__(self, name: str, foreign: Foreign) -> None:
        self._name = name
        self._foreign = foreign

    def __str__(self) -> str:
        clients, ours = self._foreign
        return f"{self._name!r}, which is a name of {clients}: {ours}"

    def __repr__(self) -> str:
        return f"<no {self}>"


NAMES: Final = {
    "stop": Foreign("aiokafka", "await producer.close(), or `async with Producer(...)`"),
    "send_and_wait": Foreign("aiokafka", "await producer.send(...), which waits for the acknowledgement"),
    "client": Foreign("aiokafka", "producer.health(), producer.partitions_for(...)"),
    "produce": Foreign("confluent-kafka", "producer.send(...); await it, or give it add_done_callback()"),
    "poll": Foreign("confluent-kafka", "nothing is polled: the event loop serves callbacks"),
    "list_topics": Foreign("confluent-kafka", "await producer.partitions_for(topic)"),
    "set_sasl_credentials": Foreign("confluent-kafka", "a producer with other options"),
    "bootstrap_connected": Foreign("kafka-python", "producer.health()"),
    "init_transactions": Foreign("confluent-kafka and kafka-python", "await producer.start(), which takes the id over"),
}
OF_DELIVERIES: Final = {
    "get": Foreign("kafka-python", "await the Delivery"),
    **dict.fromkeys(
        ("add_callback", "add_errback", "add_both"),
        Foreign("kafka-python", "await the Delivery, or give add_done_callback() a function, which is called with it"),
    ),
    **dict.fromkeys(
        ("is_done", "succeeded", "failed"),
        Foreign("kafka-python", "done(), and exception(), which is None of a success"),
    ),
    **{
        name: Foreign("RecordMetadata", f"await the Delivery, as in `(await delivery).{name}`")
        for name in ("offset", "partition", "timestamp", "topic")
    },
}


class ForeignCall:
    """A name that a class does not have: looking it up raises an AttributeError that names the replacement.

    On the class the look-up returns the `ForeignName`, as tools ask a class for everything that its `__dict__` lists.
    """

    __slots__ = ("_name",)

    def __init__(self, name: ForeignName) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self._name
        raise AttributeError(f"{owner.__name__} has no {self._name}")


class WrongWithError(TypeError, AttributeError):
    """A `with` of a producer that needs `async with`, or the reverse. `hasattr` takes it as an AttributeError."""


class WrongWith(ForeignCall):
    """The method that a `with` of the wrong kind looks for."""

    __slots__ = ("_ours",)

    def __init__(self, name: str, ours: str) -> None:
        ForeignCall.__init__(self, ForeignName(name, Foreign("another kind of `with`", ours)))
        self._ours = ours

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self._name
        raise WrongWithError(self._ours)


WITHOUT_ASYNC: Final = WrongWith(
    "__enter__",
    "a producer of asyncio is used with `async with Producer(...)`; for a program without asyncio there is"
    " aiokprod.blocking.Producer",
)
WITH_ASYNC: Final = WrongWith(
    "__aenter__",
    "aiokprod.blocking.Producer is used with `with Producer(...)`; for asyncio there is aiokprod.Producer",
)


def without_arguments(instead: str) -> Callable[[CallT], CallT]:
    """Make a method without parameters answer a call with arguments, at once, with a TypeError that says what to write.

    Not for `send`: a parameter for what does not fit costs each call that does.
    """

    def wrapped(method: CallT) -> CallT:
        @wraps(method)
        def checked(self: object, *arguments: object, **options: object) -> Any:
            if arguments or options:
                raise TypeError(f"{method.__name__}() takes no arguments: {instead}")
            return method(self)

        return cast(CallT, checked)

    return wrapped


class ForeignCallsMeta(_MetaOfProtocols):
    """Makes `help` of a producer class list what the class offers, as `help` lists what `dir` of the class returns."""

    def __dir__(self) -> list[str]:
        """List the attributes without the names of other clients, and without those that only Python itself uses."""
        return [name for name in type.__dir__(self) if name not in _OF_PYTHON and not _is_foreign(self, name)]

    # Those of Protocol's metaclass (3.11) ask each class whether it is a protocol; no subclass of a producer can be one.
    __instancecheck__ = ABCMeta.__instancecheck__
    __subclasscheck__ = ABCMeta.__subclasscheck__


class ForeignCalls(metaclass=ForeignCallsMeta):
    """The base class of objects that answer to the names of other clients."""


_OF_PYTHON: Final = frozenset({"__abstractmethods__", "__dict__", "__dir__", "__reduce_ex__", "__weakref__"})


def _own_names(instance: object) -> list[str]:
    """List the attributes without the names of other clients, so that completion in a shell offers only what exists."""
    return [name for name in object.__dir__(instance) if not _is_foreign(type(instance), name)]


def _is_foreign(kind: type, name: str) -> bool:
    return isinstance(next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None), ForeignCall)


# Not in the class bodies: type checkers still report these names.
for _kind, _names in ((ForeignCalls, NAMES), (Delivery, OF_DELIVERIES)):
    setattr(_kind, "__dir__", _own_names)  # noqa: B010 - to type checkers it stays that of `object`
    for _name, _foreign in _names.items():
        setattr(_kind, _name, ForeignCall(ForeignName(_name, _foreign)))
# Not its companion `__exit__`, too: with both a producer would be a context manager to `isinstance`.
setattr(ForeignCalls, "__enter__", WITHOUT_ASYNC)  # noqa: B010
