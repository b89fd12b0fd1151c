"""A name that `aiokprod` itself does not have: the error says where it is."""

from __future__ import annotations

from importlib import import_module

import pytest

import aiokprod
from aiokprod.elsewhere import PLACES, advice_of


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("JsonSerializer", "write `from aiokprod.serializers import JsonSerializer`"),
        ("DeliveryTimeoutError", "write `from aiokprod.errors import DeliveryTimeoutError`"),
        ("BatchSent", "write `from aiokprod.hooks import BatchSent`"),
        ("MockCluster", "write `from aiokprod.testing import MockCluster`"),
        ("AIOKafkaProducer", "write `from aiokprod.compat.aiokafka import AIOKafkaProducer`"),
        ("KafkaProducer", "the producer is aiokprod.Producer"),
        ("Consumer", "aiokprod only produces; consume with aiokafka or confluent-kafka"),
    ],
)
def test_a_name_that_is_elsewhere_is_answered_with_its_place(name: str, says: str) -> None:
    with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'aiokprod': ") as refused:
        exec(f"from aiokprod import {name}", {})
    assert says in str(refused.value)
    with pytest.raises(AttributeError, match=f"^module 'aiokprod' has no attribute '{name}': ") as missing:
        getattr(aiokprod, name)
    assert says in str(missing.value)
    assert not hasattr(aiokprod, name)


@pytest.mark.parametrize("name", ["Nonsense", "import_module", "__path_of__", "Any", "_rebuild"])
def test_a_name_that_is_nowhere_has_the_usual_errors(name: str) -> None:
    with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'aiokprod' \\("):
        exec(f"from aiokprod import {name}", {})
    with pytest.raises(AttributeError, match=f"^module 'aiokprod' has no attribute '{name}'$"):
        getattr(aiokprod, name)


def test_a_module_of_the_package_can_be_imported_by_its_name() -> None:
    names: dict[str, object] = {}
    exec("from aiokprod import serializers, testing", names)
    assert names["serializers"] is import_module("aiokprod.serializers")


def test_every_place_has_its_name() -> None:
    for name, module in PLACES.items():
        assert hasattr(import_module(module), name), name
        assert advice_of(name) == f"write `from {module} import {name}`"
