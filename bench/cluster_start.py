"""The time until `aiokprod cluster` answers: `python bench/cluster_start.py`. A few seconds; the median of several runs.

Counted from the end of the imports to the first answered Metadata, in a new process each time; and, as a user at a
terminal sees it, from the start of that process.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

RUNS = 9
ONE_RUN = """
import time
from aiokprod.cli.cluster import check_ports, ports_of
from aiokprod.testing.kafka_cluster.blocking import BlockingConnection
from aiokprod.testing.mock import MockCluster
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse

imported = time.perf_counter()
ports = ports_of(3, PORT)
check_ports(ports or ())
with MockCluster(3, ports=ports) as cluster:
    first = cluster.bootstrap_servers.split(",")[0]
    host, _, port = first.partition(":")
    connection = BlockingConnection(host, int(port), 10.0)
    answer = connection.request(MetadataRequest(), MetadataResponse)
    answered = time.perf_counter()
    connection.close()
assert len(answer.brokers) == 3
print(answered - imported, time.clock_gettime(time.CLOCK_MONOTONIC) - BEGAN)
"""


def one_run_s(port: int = 0) -> tuple[float, float]:
    """Return the seconds to the first answered Metadata: from the end of the imports, and from the start of the process."""
    program = f"import time\nPORT = {port}\nBEGAN = time.clock_gettime(time.CLOCK_MONOTONIC)\n{ONE_RUN}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    after_imports, whole = done.stdout.split()
    return float(after_imports), float(whole)


def main() -> None:
    runs = [one_run_s() for _ in range(RUNS)]
    after_imports, whole = (sorted(times) for times in zip(*runs, strict=True))
    for name, times in (("after the imports", after_imports), ("with the imports", whole)):
        print(f"first Metadata answered, {name}: {median(times) * 1e3:.0f} ms (worst of {RUNS}: {times[-1] * 1e3:.0f})")


if __name__ == "__main__":
    main()
