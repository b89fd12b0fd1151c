"""The processor time of `import`, without its connection to a cluster: each client in fresh processes, taking turns.

python bench/imports.py [RUNS]     prints the least time of each, what is above an empty interpreter, and the ratio to aiokafka

The least of many runs: the time of an import only ever grows by what else the machine does. `startup.py` measures the first
record too, and needs a cluster.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

RUNS: Final = 15
PROGRAMS: Final = {
    "nothing": "pass",
    "asyncio": "import asyncio",
    "aiokprod, pure": "from aiokprod import Producer",
    "aiokafka": "from aiokafka import AIOKafkaProducer",
    "confluent-kafka": "from confluent_kafka import Producer",
    "kafka-python": "from kafka import KafkaProducer",
}


def measure(programs: Mapping[str, str], runs: int = RUNS) -> dict[str, float]:
    """Run each program in turn, in fresh interpreters; return the least processor time of each, in milliseconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["AIOKPROD_PURE"] = "1"
    least: dict[str, float] = {}
    for number in range(runs + 1):
        for name, program in programs.items():
            before = children_ms()
            subprocess.run([sys.executable, "-c", program], env=environment, check=True)
            taken = children_ms() - before
            if number:  # the first round writes byte code
                least[name] = min(least.get(name, taken), taken)
    return least


def children_ms() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def main() -> None:
    least = measure(PROGRAMS, int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
    empty = least["nothing"]
    for name, taken in least.items():
        ratio = (taken - empty) / (least["aiokafka"] - empty)
        print(f"{name:<16} {taken:6.1f} ms  +{taken - empty:5.1f} ms  {ratio:.2f} of aiokafka")


if __name__ == "__main__":
    main()
