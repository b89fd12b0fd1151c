"""aiokprod: an asyncio-native Apache Kafka producer."""
