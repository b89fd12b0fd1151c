"""Checks when a producer is built, and where one can be started."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme

from aiokprod import Producer, ProducerConfig
from aiokprod.errors import ConfigError, UsageError
from aiokprod.reader import Reader
from aiokprod.testing.memory import MemoryProducer

CA = trustme.CA()
LEAF = CA.issue_cert("client@example.org")
SERVERS = "127.0.0.1:1"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    named = {name: tmp_path / f"{name}.pem" for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")}
    CA.cert_pem.write_to_path(str(named["ssl_cafile"]))
    LEAF.cert_chain_pems[0].write_to_path(str(named["ssl_certfile"]))
    LEAF.private_key_pem.write_to_path(str(named["ssl_keyfile"]))
    return named


def test_files_of_certificates_are_taken_as_paths_and_as_texts(files: dict[str, Path]) -> None:
    Producer(SERVERS, security_protocol="SSL", **files)  # type: ignore[arg-type]
    Producer(SERVERS, security_protocol="SSL", **{name: str(path) for name, path in files.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("wrong", ["missing", "no PEM"])
def test_a_file_that_cannot_be_used_is_an_error_when_the_producer_is_built(
    option: str, wrong: str, files: dict[str, Path]
) -> None:
    if wrong == "missing":
        files[option].unlink()
    else:
        files[option].write_text("hello")
    with pytest.raises(ConfigError, match=rf"^{option}: .*{files[option].name}"):
        Producer(SERVERS, security_protocol="SSL", **files)  # type: ignore[arg-type]


def test_a_config_may_name_files_of_another_machine(files: dict[str, Path]) -> None:
    files["ssl_cafile"].unlink()
    config = ProducerConfig(bootstrap_servers=SERVERS, security_protocol="SSL", ssl_cafile=str(files["ssl_cafile"]))
    MemoryProducer(config)  # a unit test with the config of production
    with pytest.raises(ConfigError, match="ssl_cafile"):
        Producer(config)


def run_elsewhere(work: Coroutine[Any, Any, object]) -> None:
    """Run one step, as a loop that is not asyncio's would do it."""
    try:
        work.send(None)
    finally:
        work.close()


def test_without_a_loop_of_asyncio_a_start_says_what_it_needs() -> None:
    producer = Producer(SERVERS)
    with pytest.raises(UsageError, match="not on trio; under anyio choose the backend 'asyncio'"):
        run_elsewhere(producer.start())
    with pytest.raises(UsageError, match="no asyncio event loop runs here"):
        run_elsewhere(producer.__aenter__())
    with pytest.raises(UsageError, match="no asyncio event loop runs here"):
        run_elsewhere(Reader(SERVERS).start())
    assert producer.health().state.value == "NEW"


@pytest.mark.parametrize("kind", [Producer, MemoryProducer])
def test_servers_that_are_given_twice_are_refused_and_both_named(kind: type[Producer]) -> None:
    with pytest.raises(ConfigError, match=r"'localhost:9092'.*bootstrap_servers.*'other:1'"):
        kind("localhost:9092", bootstrap_servers="other:1")
