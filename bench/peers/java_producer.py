"""Java's own producer, by Apache Kafka's ProducerPerformance: a ceiling, no Python in it.

The virtual machine warms up and compiles during the measurement, as in any program; the cost of its start is measured by
a run of one record and subtracted. The tool has no keys, no headers and one topic only, and its latencies count from when
a record was sent, not from when it was due, so it takes no part in the open loop. Its transactions end by time alone.
"""

from __future__ import annotations

import os
import re
import subprocess
from tempfile import NamedTemporaryFile

from child import Stopwatch
from job import Job, Measured

from aiokprod.testing.kafka_cluster.cluster import DEFAULT_VERSION
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

LEAST = 100_000  # with fewer, the start of a JVM varies more than the records cost


def firehose(job: Job, stopwatch: Stopwatch) -> None:
    count = max(LEAST, job.count)
    start_cpu_s, _ = run(job, 1)
    print("begin", flush=True)
    cpu_s, told = run(job, count)
    print("end", flush=True)
    rate = re.findall(r"records sent, ([0-9.]+) records/sec", told)[-1]
    stopwatch.measured = Measured(count / float(rate), cpu_s - start_cpu_s, count)


def run(job: Job, count: int) -> tuple[float, str]:
    """Run the tool; return the processor time of its process, and its output."""
    settings = {"bootstrap.servers": job.servers, "acks": "all", "enable.idempotence": "true"}
    settings["compression.type"] = job.compression
    if job.linger_ms is not None:
        settings["linger.ms"] = str(job.linger_ms)
    if job.transaction_ms:
        transactions = ["--transaction-duration-ms", str(job.transaction_ms)]
    else:
        transactions = []
    properties = [f"{name}={value}" for name, value in (settings | job.settings).items()]
    command = [find_java(), "-Xms512m", "-Xmx512m", "-cp", kafka_classpath(DEFAULT_VERSION)]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", job.topic]
    command += ["--num-records", str(count), "--throughput", "-1", *transactions, "--producer-props", *properties]
    with NamedTemporaryFile() as values:  # the value that all clients send: to draw one per record would cost extra
        values.write(job.value())
        values.flush()
        before = os.times()
        done = subprocess.run([*command, "--payload-file", values.name], capture_output=True, text=True, check=False)
        after = os.times()
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return after.children_user + after.children_system - before.children_user - before.children_system, done.stdout


WAYS = {"firehose": firehose, "transactions": firehose}
