"""The base of generated messages: equality, the text that shows a message, and defaults that are not shared."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from aiokprod.values import FrozenValue, Value
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


def test_structs_are_equal_by_class_and_values() -> None:
    assert MetadataRequestTopic(name="orders") == MetadataRequestTopic(name="orders")
    assert MetadataRequestTopic(name="orders") != MetadataRequestTopic(name="other")
    assert MetadataRequest() != MetadataResponse()
    assert MetadataRequest() != "a request"
    assert MetadataRequest(topics=[MetadataRequestTopic()]) == MetadataRequest(topics=[MetadataRequestTopic()])


def test_a_struct_is_shown_with_its_values() -> None:
    topic = MetadataRequestTopic(topic_id=b"i" * 16, name="orders")
    assert repr(topic) == "MetadataRequestTopic(topic_id=b'iiiiiiiiiiiiiiii', name='orders')"
    assert repr([MetadataRequest(topics=None)]).startswith("[MetadataRequest(topics=None, allow_auto_topic_creation=")


def test_a_list_that_is_not_given_is_new_and_one_that_is_given_is_kept() -> None:
    assert MetadataRequest().topics is not MetadataRequest().topics
    given: list[MetadataRequestTopic] = []
    assert MetadataRequest(topics=given).topics is given


def test_a_message_is_a_dataclass_without_a_dict_or_a_hash() -> None:
    assert [one.name for one in fields(MetadataRequestTopic)] == ["topic_id", "name"]
    assert replace(MetadataRequestTopic(name="orders"), name=None) == MetadataRequestTopic(name=None)
    assert isinstance(MetadataRequest(), Value)
    assert not hasattr(MetadataRequest(), "__dict__")
    with pytest.raises(TypeError, match="unhashable"):
        hash(MetadataRequest())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Place(FrozenValue):
    """A value that can be a key."""

    topic: str
    secret: str = field(default="", repr=False)


def test_a_frozen_value_is_a_key_and_cannot_be_changed() -> None:
    assert {Place(topic="orders"): 1}[Place(topic="orders")] == 1
    assert Place(topic="orders") != Place(topic="orders", secret="another")
    assert repr(Place(topic="orders")) == "Place(topic='orders')"
    with pytest.raises(FrozenInstanceError):
        Place(topic="orders").topic = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(Place(topic="orders", secret="s"))) == Place(topic="orders", secret="s")
