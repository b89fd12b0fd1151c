"""The brokers that a cluster names: can this machine reach them under the names that they advertise?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

from aiokprod.cli.doctoring.finding import Finding, fine
from aiokprod.cli.doctoring.servers import Examination, ServerExaminer
from aiokprod.cluster.hosts import address_of
from aiokprod.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

AT_A_TIME = 8
SAME_FOR_ALL = frozenset({"dns", "refused", "unreachable"})
"""findings whose change is at the broker, as it is the broker that names the address"""


async def of_brokers(
    examiner: ServerExaminer, cluster: MetadataResponse, asked: Sequence[tuple[str, int]]
) -> list[Finding]:
    """Examine each broker of a cluster.

    Args:
        examiner: of single servers.
        cluster: as a bootstrap server told it.
        asked: the bootstrap servers that answered; a broker at such an address is reachable.
    """
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(broker: MetadataResponseBroker) -> Examination | None:
        if (broker.host, broker.port) in asked:
            return None
        async with gate:
            found = await examiner.examine(broker.host, broker.port)
        if found.reached is not None:
            found.reached.connection.close(ConnectionError("the examination is over"))
            await found.reached.connection.wait_closed()
        return found

    brokers = sorted(cluster.brokers, key=lambda each: each.node_id)
    results = await asyncio.gather(*(one(each) for each in brokers))
    findings: list[Finding] = []
    for broker, result in zip(brokers, results, strict=True):
        for finding in () if result is None else result.findings:
            findings.append(_of(broker, finding, asked))
    if not any(each.is_trouble for each in findings):
        findings.append(fine("brokers", f"{_who(len(brokers))} can be reached as advertised"))
    return findings


def _who(count: int) -> str:
    return "the only broker" if count == 1 else f"all {count} brokers"


def _of(broker: MetadataResponseBroker, finding: Finding, asked: Sequence[tuple[str, int]]) -> Finding:
    if finding.name not in SAME_FOR_ALL:
        return Finding(finding.name, f"broker {broker.node_id}: {finding.what}", finding.change, finding.is_trouble)
    host = next((host for host, _ in asked if not _is_loopback(host)), None)
    address = address_of(host or "NAME_THAT_CLIENTS_KNOW", broker.port)
    advertised = address_of(broker.host, broker.port)
    told = f"broker {broker.node_id} advertises {advertised}, which this machine cannot reach: {finding.what}"
    if _is_loopback(broker.host) and host is not None:
        told += " (that is this machine itself, and not the broker)"
    return Finding(
        "advertised-listeners",
        told,
        f"advertised.listeners=LISTENER://{address}  (in server.properties of broker {broker.node_id})",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
