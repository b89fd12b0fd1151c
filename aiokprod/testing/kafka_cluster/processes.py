"""`ProcessBackend`: each node a JVM of its own on this machine, each in its own process group.

Invariants: only what we started is signalled, by the handle we hold; every process ends with `stop`, at interpreter
exit, or, if this process is killed itself, through the `ProcessReaper`; data and logs live in one temporary directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aiokprod.testing.kafka_cluster.backend import Broker, BrokerState
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath
from aiokprod.testing.kafka_cluster.java_process import JavaProcess
from aiokprod.testing.kafka_cluster.ports import is_free
from aiokprod.testing.kafka_cluster.process_reaper import ProcessReaper
from aiokprod.testing.kafka_cluster.properties import ZOOKEEPER_SESSION_S, process_properties, to_text
from aiokprod.testing.kafka_cluster.spec import HOST, INTERNAL, ClusterSpec, NodeSpec

FORMAT_TIMEOUT_S: Final = 120.0
ZOOKEEPER_TICK_S: Final = 1.0  # a session lasts at least two ticks: ours are to end soon after a kill
# Tools and start-up are class loading, not computing: the first compiler is enough for the short-lived ones.
_TOOL_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx128m")
_LOG_SETTINGS = """\
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""


class ProcessBroker(Broker):
    """A broker in a JVM of its own."""

    def __init__(
        self,
        node: NodeSpec,
        listener: str,
        wait_registered: Callable[[int], None],
        process: JavaProcess,
        *,
        mourned_s: float,
    ) -> None:
        """Prepare the processes; `mourned_s`: seconds for which the cluster regards the id as taken after a kill."""
        super().__init__(node, listener, wait_registered)
        self.process = process
        self._mourned_s = mourned_s
        self._not_before_s = 0.0  # of the monotonic clock

    @property
    def state(self) -> BrokerState:
        return self.process.state

    @property
    def pid(self) -> int | None:
        """The JVM's process id while it lives."""
        return self.process.pid

    def kill(self) -> None:
        self.process.end(signal.SIGKILL, timeout_s=30.0)
        self._not_before_s = time.monotonic() + self._mourned_s

    def stop(self, timeout_s: float = 60.0) -> None:
        self.process.end(signal.SIGTERM, timeout_s)

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def log_tail(self, lines: int = 40) -> str:
        return self.process.tail(lines)

    def _launch(self) -> None:
        time.sleep(max(0.0, self._not_before_s - time.monotonic()))
        # Kafka finds a taken port late: other listeners may answer before the broker gives up.
        if taken := [f"{port} ({name})" for name, port in self.node.bound.items() if not is_free(port)]:
            raise KafkaClusterError(
                f"broker {self.node_id}: another program listens on port {', '.join(taken)} of {HOST}: "
                "end it, or choose other ports"
            )
        self.process.launch()


class ProcessBackend:
    """All JVMs of one cluster, and their temporary directory."""

    def __init__(self) -> None:
        self.admin_listener = INTERNAL
        self.brokers: dict[int, Broker] = {}
        self._directory: Path | None = None
        self._reaper: ProcessReaper | None = None
        self._zookeeper: JavaProcess | None = None

    def start(self, spec: ClusterSpec, wait_registered: Callable[[int], None]) -> None:
        if sys.platform == "win32":
            raise KafkaClusterError('brokers as processes need POSIX signals: use KafkaCluster(backend="containers")')
        java, classpath = find_java(), os.pathsep.join([kafka_classpath(spec.version), *spec.class_path])
        self._directory = Path(tempfile.mkdtemp(prefix="aiokprod-kafka-"))
        self._reaper = ProcessReaper(self._directory)
        for node in spec.nodes:
            directory = self._prepare_node(spec, node)
            flags = [f"-Xms{spec.heap}", f"-Xmx{spec.heap}", "-XX:+UseSerialGC", "-Xshare:auto", *spec.java_options]
            command = [java, *flags, *_log_flags(directory), "-cp", classpath, "kafka.Kafka"]
            command.append(str(directory / "server.properties"))
            process = JavaProcess(f"broker {node.node_id}", command, directory, self._reaper)
            self.brokers[node.node_id] = ProcessBroker(
                node,
                spec.listeners[0],
                wait_registered,
                process,
                mourned_s=ZOOKEEPER_SESSION_S + 2 * ZOOKEEPER_TICK_S if spec.needs_zookeeper else 0.0,
            )
        if spec.needs_zookeeper:
            self._start_zookeeper(spec, java, classpath)
        else:
            self._format(spec, java, classpath)
        for broker in self.brokers.values():
            broker.start(wait=False)

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.end(signal.SIGKILL, timeout_s=30.0)
        if self._reaper is not None:
            self._reaper.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self.brokers, self._zookeeper, self._reaper, self._directory = {}, None, None, None

    def _prepare_node(self, spec: ClusterSpec, node: NodeSpec) -> Path:
        assert self._directory is not None
        directory = self._directory / f"node-{node.node_id}"
        directory.mkdir()
        properties = process_properties(spec, node, str(directory / "data"))
        settings = directory / "server.properties"
        settings.touch(mode=0o600)  # it may hold passwords
        settings.write_text(to_text(properties))
        (directory / "log4j2.properties").write_text(_LOG_SETTINGS.format(path=directory / "server.log"))
        return directory

    def _format(self, spec: ClusterSpec, java: str, classpath: str) -> None:
        """Format every node's storage, side by side: the JVM's start is most of the time."""
        assert self._directory is not None
        command = [java, *_TOOL_FLAGS, "-cp", classpath, "kafka.tools.StorageTool", "format"]
        # "--cluster-id=ID" in one word: an id may begin with a dash.
        command += [f"--cluster-id={spec.cluster_id}", *spec.security.scram_arguments(spec.listeners)]
        command += [f"--feature={name}={level}" for name, level in spec.features.items()]
        command.append("-c")
        tools = [
            subprocess.Popen(
                [*command, str(self._directory / f"node-{node.node_id}" / "server.properties")],
                env=os.environ | {"LC_ALL": "C.UTF-8"},  # in which Java reads its arguments: passwords are there
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for node in spec.nodes
        ]
        outputs: list[bytes] = []
        try:
            outputs = [tool.communicate(timeout=FORMAT_TIMEOUT_S)[0] for tool in tools]
        finally:
            for tool in tools:
                if tool.poll() is None:
                    tool.kill()
                    tool.communicate()
        for tool, output in zip(tools, outputs, strict=True):
            if tool.returncode != 0:
                raise KafkaClusterError(
                    f"formatting Kafka's storage failed:\n{output.decode(errors='replace')[-2000:]}"
                )

    def _start_zookeeper(self, spec: ClusterSpec, java: str, classpath: str) -> None:
        assert self._directory is not None and self._reaper is not None
        directory = self._directory / "zookeeper"
        directory.mkdir()
        settings = directory / "zookeeper.properties"
        properties = {
            "dataDir": str(directory / "data"),
            "clientPort": str(spec.zookeeper_port),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "tickTime": str(int(ZOOKEEPER_TICK_S * 1000)),
        }
        settings.write_text(to_text(properties))
        (directory / "log4j2.properties").write_text(_LOG_SETTINGS.format(path=directory / "server.log"))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        flags = ["-Xmx128m", "-XX:+UseSerialGC", *spec.java_options, *_log_flags(directory)]
        command = [java, *flags, "-cp", classpath, main, str(settings)]
        self._zookeeper = JavaProcess("ZooKeeper", command, directory, self._reaper)
        self._zookeeper.launch()


def _log_flags(directory: Path) -> list[str]:
    """Return JVM flags: log to the node's own file, and make log4j 2 accept the log4j 1 calls of Kafka 2.x."""
    return [f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}", "-Dlog4j1.compatibility=true"]
