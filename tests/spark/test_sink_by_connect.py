"""Spark Connect: a client that has no aiokprod writes a batch and a stream through a server that has it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_process import Child

from aiokprod.reader import Reader

pytestmark = [pytest.mark.real, pytest.mark.slow]

CLIENT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("aiokprod", "pyspark_aiokprod"):
            raise ImportError("the client has none")

sys.meta_path.insert(0, Without())
remote, servers, topic, folder = sys.argv[1:]

from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(remote).getOrCreate()
rows = spark.range(600, numPartitions=2).selectExpr("cast(id as string) as value", "cast(id % 7 as string) as key")
options = {"kafka.bootstrap.servers": servers, "topic": topic}
rows.write.format("aiokprod").options(**options).mode("append").save()

spark.range(600, 1000, numPartitions=2).selectExpr("cast(id as string) as value").write.parquet(folder + "/rows")
stream = spark.readStream.schema("value string").parquet(folder + "/rows").writeStream.format("aiokprod")
stream = stream.options(**options).option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
assert stream.start().awaitTermination(60)

try:
    rows.write.format("aiokprod").options(**options, bootstrap="x").mode("append").save()
except Exception as refused:
    print("refused:", str(refused))
spark.stop()
"""


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """Run a Connect server in its own process, on a port that the system chooses; yield its URL."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_DIR": str(tmp_path), "SPARK_IDENT_STRING": "test"}
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(tmp_path / "local"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command = [str(home / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    log = tmp_path / "server.log"
    with (
        log.open("wb") as output,
        Child([*command, "spark-internal"], env=environment, stdout=output, stderr=output) as server,
    ):
        try:
            yield f"sc://127.0.0.1:{asyncio.run(asyncio.wait_for(port_of(log), 60))}"
        finally:
            server.terminate()
            server.wait(60)


async def port_of(log: Path) -> int:
    """Return the port that the server prints when it listens."""
    while True:
        for line in log.read_text().splitlines():
            if "Spark Connect server started at" in line:
                return int(line.rpartition(":")[2])
        await asyncio.sleep(0.1)


async def values_in(servers: str, topic: str) -> Counter[bytes | None]:
    async with Reader(servers) as reader:
        partitions = await reader.partitions(topic)
        return Counter([record.value for each in partitions async for record in reader.read(topic, each)])


def test_a_client_without_aiokprod_writes_through_the_server(
    connect_server: str, kafka_bootstrap: str, kafka_topic: str, tmp_path: Path
) -> None:
    arguments = [connect_server, kafka_bootstrap, kafka_topic, str(tmp_path)]
    client = subprocess.run(
        [sys.executable, "-c", CLIENT, *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert client.returncode == 0, client.stderr
    assert "bootstrap" in client.stdout and "refused:" in client.stdout
    assert asyncio.run(values_in(kafka_bootstrap, kafka_topic)) == Counter(b"%d" % number for number in range(1000))
