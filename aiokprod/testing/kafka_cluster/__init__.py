"""A real Apache Kafka cluster for tests: `KafkaCluster`, its brokers, its security."""

from aiokprod.testing.kafka_cluster.backend import Broker, BrokerState
from aiokprod.testing.kafka_cluster.cluster import BackendName, KafkaCluster
from aiokprod.testing.kafka_cluster.errors import KafkaAdminError, KafkaClusterError
from aiokprod.testing.kafka_cluster.security import ClusterSecurity, TlsFiles

__all__ = [
    "KafkaCluster",
    "Broker",
    "BrokerState",
    "BackendName",
    "ClusterSecurity",
    "TlsFiles",
    "KafkaClusterError",
    "KafkaAdminError",
]
