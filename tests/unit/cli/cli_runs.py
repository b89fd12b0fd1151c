"""Runs of the command line in this process, for the tests of its commands."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner, Result

from aiokprod import Producer, __version__
from aiokprod.cli.commands import group
from aiokprod.testing import MockCluster

AIOKPROD = group(__version__, "version")
ENVIRONMENT = {"AIOKPROD_BOOTSTRAP_SERVERS": "", "NO_COLOR": ""}


def run(cluster: MockCluster | None, *arguments: str, input: bytes | str | None = None, **environ: str) -> Result:
    """Run a command against a cluster; it must end by an exit status, and say nothing of a traceback."""
    environment = dict(ENVIRONMENT)
    if cluster is not None:
        environment["AIOKPROD_BOOTSTRAP_SERVERS"] = cluster.bootstrap_servers
    done = CliRunner().invoke(AIOKPROD, arguments, input=input, env=environment | environ, prog_name="aiokprod")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return done


def ok(cluster: MockCluster | None, *arguments: str, input: bytes | str | None = None, **environ: str) -> str:
    """Run a command that must succeed; return its output."""
    done = run(cluster, *arguments, input=input, **environ)
    assert done.exit_code == 0, done.output
    return done.stdout


def objects(output: str) -> list[dict[str, Any]]:
    """Return the JSON objects of an output."""
    return [json.loads(line) for line in output.splitlines()]


def write(cluster: MockCluster, topic: str, values: Sequence[bytes | None], **more: Any) -> None:
    """Write records, one after another."""

    async def send() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            for value in values:
                await producer.send(topic, value, **more)

    asyncio.run(send())


def leave_open(cluster: MockCluster, name: str = "orders-1") -> None:
    """Leave a transaction with one record in partition 0 of the topic `t` open."""

    async def leave() -> None:
        async with Producer(cluster.bootstrap_servers, transactional_id=name) as producer:
            producer.begin_transaction()
            await producer.send("t", b"v", partition=0)
            await producer.prepare_transaction()

    asyncio.run(leave())


def in_background(call: Any, *arguments: Any) -> threading.Thread:
    """Start a call on a thread that ends with the process."""
    thread = threading.Thread(target=call, args=arguments, daemon=True)
    thread.start()
    return thread
