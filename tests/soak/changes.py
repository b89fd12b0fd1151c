"""Changes that a soak's nemesis makes to the cluster's set-up while it runs: quotas, certificates, addresses. One per nemesis.

Each is undone, but for those that no operator undoes: a new certificate stays, and so does a new address.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from certificates import Certificates, is_shown
from clients import Client
from evidence import Done
from names import ADDRESSES
from plan import Injection
from profiles import TLS

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.spec import HOST

QUOTA_BYTES_PER_S = 60_000.0  # of one broker; a workload sends it five times as much
QUOTA_WINDOWS = 2  # of a second each, which the broker looks back: the throttle ends soon after the quota
FOUND_S = 10.0  # within which brokers show a new certificate, and clients find a new address


class Changes:
    """The faults about quotas, certificates and addresses."""

    def __init__(
        self,
        cluster: KafkaCluster,
        clients: Sequence[Client],
        certificates: Certificates,
        admin_lock: threading.Lock,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.work: dict[str, Callable[[Injection, Done], None]] = {
            "quota": self._quota,
            "swap certificate": self._swap_certificate,
            "change address": self._change_address,
        }
        self._cluster = cluster
        self._clients = clients
        self._certificates = certificates
        self._admin_lock = admin_lock
        self._pause = pause
        self._address = ADDRESSES[0]

    def heal(self) -> None:
        """Remove all quotas."""
        for client in self._clients:
            self._set_quota(client, None)

    def _quota(self, injection: Injection, done: Done) -> None:
        client = self._clients[injection.client]
        done.text = f"a quota of {QUOTA_BYTES_PER_S:,.0f} B/s for {client.name}, {injection.seconds} s"
        self._set_quota(client, QUOTA_BYTES_PER_S)
        self._pause(injection.seconds)
        self._set_quota(client, None)
        done.healed = time.monotonic()
        self._pause(QUOTA_WINDOWS)  # what the broker has told it to wait
        done.client = client.name  # whose samples tell how long it was throttled

    def _set_quota(self, client: Client, bytes_per_s: float | None) -> None:
        with self._admin_lock:
            self._cluster.admin.alter_client_quota(client.name, {"producer_byte_rate": bytes_per_s})

    def _swap_certificate(self, injection: Injection, done: Done) -> None:
        path = self._certificates.issue()
        done.text = f"certificate {path.name} for every broker"
        setting = {f"listener.name.{TLS.lower()}.ssl.keystore.location": str(path)}
        for node, broker in self._cluster.brokers.items():
            with self._admin_lock:
                self._cluster.admin.alter_broker(node, setting)
            deadline = time.monotonic() + FOUND_S
            while not is_shown(path, (HOST, broker.node.bound[TLS])):
                if time.monotonic() > deadline:
                    raise KafkaClusterError(f"broker {node} shows another certificate than {path.name}")
                self._pause(0.05)
        proxy = self._cluster.proxies[TLS]
        before = proxy.connections()
        closed = proxy.close_connections()
        done.healed = time.monotonic()
        done.met = self._new_connections(TLS, before, wanted=1)
        done.text += f"; {closed} connections ended, {done.met} made with it"

    def _change_address(self, injection: Injection, done: Done) -> None:
        self._address = next(each for each in ADDRESSES if each != self._address)
        before = {name: proxy.connections() for name, proxy in self._cluster.proxies.items()}
        ended = sum(proxy.move(self._address) for proxy in self._cluster.proxies.values())
        self._pause(min(injection.seconds, 3.0))  # the new address is told only after the hosts have moved
        for client in self._clients:
            client.resolve(self._address)
        done.healed = time.monotonic()
        found = {name: self._new_connections(name, count, wanted=1) for name, count in before.items()}
        done.met = sum(found.values())
        done.text = f"brokers move to {self._address}: {ended} connections ended, {done.met} made there"
        if missed := [name for name, count in found.items() if not count]:
            done.text += f", none to {', '.join(missed)}"

    def _new_connections(self, listener: str, before: int, *, wanted: int) -> int:
        """Wait for as many new connections as wanted, for a while; return their number."""
        proxy = self._cluster.proxies[listener]
        deadline = time.monotonic() + FOUND_S
        while (count := proxy.connections() - before) < wanted and time.monotonic() < deadline:
            self._pause(0.05)
        return count
