"""A name that `aiokprod` itself does not have: the error says where it is."""

from __future__ import annotations

from importlib import import_module

import pytest

import aiokprod
from aiokprod.elsewhere import ERRORS, PLACES, advice_of


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


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        ("errors", "KafkaError", "the nearest error is `from aiokprod.errors import AiokprodError`"),
        ("errors", "KafkaTimeoutError", "import DeliveryTimeoutError`"),
        ("errors", "DeliveryTimeout", "did you mean `from aiokprod.errors import DeliveryTimeoutError`?"),
        ("errors", "Bufferfullerror", "did you mean `from aiokprod.errors import BufferFullError`?"),
        ("errors", "JsonSerializer", "write `from aiokprod.serializers import JsonSerializer`"),
        ("errors", "Producer", "write `from aiokprod import Producer`"),
        ("errors", "RegistryError", "write `from aiokprod.integrations.schema_registry import RegistryError`"),
        ("serializers", "JSONSerializer", "did you mean `from aiokprod.serializers import JsonSerializer`?"),
        ("serializers", "AvroSerializer", "see aiokprod.integrations.schema_registry"),
        ("serializers", "StringDeserializer", "only produces"),
        ("serializers", "DeliveryError", "write `from aiokprod.errors import DeliveryError`"),
    ],
)
def test_a_name_that_errors_or_serializers_lack_is_answered_with_what_to_write(
    module: str, name: str, says: str
) -> None:
    def importing() -> None:
        exec(f"from aiokprod.{module} import {name}", {})

    for _ in range(20):  # also when the interpreter has specialised the code
        with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'aiokprod.{module}': ") as refused:
            importing()
    assert says in str(refused.value)
    held = import_module(f"aiokprod.{module}")
    with pytest.raises(AttributeError, match=f"^module 'aiokprod.{module}' has no attribute '{name}': ") as missing:
        getattr(held, name)
    assert says in str(missing.value) and not hasattr(held, name)


@pytest.mark.parametrize("module", ["errors", "serializers"])
def test_other_names_of_these_modules_have_the_usual_errors(module: str) -> None:
    for name in ("Nonsense", "__path__", "_private"):
        with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'aiokprod.{module}' \\("):
            exec(f"from aiokprod.{module} import {name}", {})
        assert not hasattr(import_module(f"aiokprod.{module}"), name)


def test_what_is_advised_in_place_of_another_clients_error_is_there() -> None:
    for ours in ERRORS.values():
        assert hasattr(import_module("aiokprod.errors"), ours), ours
