"""The options of a producer: Kafka's own names in snake case, validated once."""

from aiokprod.config.oauth_token import OAuthToken
from aiokprod.config.options import ProducerOptions
from aiokprod.config.partitioner import Partitioner
from aiokprod.config.producer_config import ProducerConfig
from aiokprod.config.secret import Secret

__all__ = ["OAuthToken", "Partitioner", "ProducerConfig", "ProducerOptions", "Secret"]
