"""Spark's own Kafka source and sink, as jars: to read back what a job wrote, and to compare. Fetched by Maven once.

The connector is published later than PySpark: 4.2.0 is the newest there is, and works with PySpark 4.3.0; PySpark 4.1 wants
one of its own. Of its token provider, which only prepares a client's security settings, the newest is older still.
"""

from __future__ import annotations

from importlib import metadata
from typing import Final

from aiokprod.testing.kafka_cluster.jars import maven_jars

CONNECTOR_VERSION: Final = "4.2.0"
CONNECTOR_OF_4_1: Final = "4.1.3"
TOKEN_PROVIDER_VERSION: Final = "4.1.0-preview1"
# The others that Maven brings are part of PySpark.
_WANTED: Final = ("spark-sql-kafka-", "spark-token-provider-kafka-", "kafka-clients-", "commons-pool2-")
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>aiokprod.testing</groupId>
  <artifactId>spark-kafka</artifactId>
  <version>1</version>
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.spark</groupId>
    <artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
    <version>${token.version}</version>
  </dependency></dependencies></dependencyManagement>
  <dependencies><dependency>
    <groupId>org.apache.spark</groupId>
    <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
    <version>${connector.version}</version>
  </dependency></dependencies>
</project>
"""


def spark_kafka_jars() -> list[str]:
    """Return the jars for `spark.jars` (joined by commas), so that `format("kafka")` is known; about 8 s the first time.

    Raises:
        KafkaClusterError: Maven is missing or failed.
    """
    connector = CONNECTOR_OF_4_1 if metadata.version("pyspark").startswith("4.1.") else CONNECTOR_VERSION
    properties = {"connector.version": connector, "token.version": TOKEN_PROVIDER_VERSION}
    home = maven_jars(f"spark-{connector}", _POM.encode(), f"Spark's Kafka connector {connector}", properties)
    return sorted(str(jar) for jar in home.iterdir() if jar.name.startswith(_WANTED))
