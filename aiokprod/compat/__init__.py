"""Faces of other clients on aiokprod's producer, one package for each client; each needs that client, as an extra.

`aiokprod.compat.aiokafka` has `AIOKafkaProducer`. Nothing here is imported by the rest of the package.
"""
