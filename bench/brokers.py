"""The brokers of a run: real ones, on a processor of their own, behind a delay proxy if the item asks for one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster.spec import ClusterSpec

HERE: Final = Path(__file__).parent
CLIENT_CORE, BROKER_CORE = 0, 1


class DelayedCluster(KafkaCluster):
    """A cluster whose brokers advertise the ports of a proxy that delays both ways."""

    def __init__(self, brokers: int, round_trip_ms: float, config: dict[str, str]) -> None:
        super().__init__(brokers=brokers, config=config, proxied=True, java_options=())
        self._one_way_s = round_trip_ms / 2000
        self.delays: subprocess.Popen[str] | None = None

    def _start_proxy(self, spec: ClusterSpec) -> None:
        first = spec.listeners[0]
        ports = [str(port) for node in spec.nodes for port in (node.advertised[first], node.bound[first])]
        command = [sys.executable, str(HERE / "delay_proxy.py"), str(self._one_way_s), *ports]
        self.delays = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.delays.stdout is not None
        assert self.delays.stdout.readline() == "ready\n"

    def stop(self) -> None:
        super().stop()
        if self.delays is not None:
            self.delays.terminate()
            self.delays.wait()
            if self.delays.stdout is not None:
                self.delays.stdout.close()


@contextmanager
def started(brokers: int, round_trip_ms: float, transaction_version: int | None = None) -> Iterator[KafkaCluster]:
    """Yield brokers (and their proxy) that share one processor, where the machine has two.

    `transaction_version`: the finalized feature; None: that of a new cluster.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, {BROKER_CORE})  # the brokers inherit it
    try:
        config = {"num.io.threads": "2"}
        features = None if transaction_version is None else {"transaction.version": transaction_version}
        cluster = (
            DelayedCluster(brokers, round_trip_ms, config)
            if round_trip_ms
            else KafkaCluster(brokers=brokers, config=config, features=features, java_options=())
        )
        with cluster:
            os.sched_setaffinity(0, cores)
            yield cluster
    finally:
        os.sched_setaffinity(0, cores)


def client_core() -> int | None:
    return CLIENT_CORE if len(os.sched_getaffinity(0)) > 1 else None


def broker_cpu_s(cluster: KafkaCluster) -> float:
    """Return the seconds of processor time that the brokers have used so far."""
    return sum(cpu_s(pid) for pid in java_children())


def proxy_cpu_s(cluster: KafkaCluster) -> float:
    if isinstance(cluster, DelayedCluster) and cluster.delays is not None:
        return cpu_s(cluster.delays.pid)
    return 0.0


def java_children() -> list[int]:
    """Return the broker processes that this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition(")")
        except OSError:
            continue  # the process has ended
        if name.endswith("(java") and rest.split()[1] == str(os.getpid()):
            found.append(int(folder.name))
    if not found:
        raise SystemExit("there is no broker")
    return found


def cpu_s(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
