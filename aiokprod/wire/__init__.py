"""Kafka's wire protocol without I/O: frames, the exchange of one connection, and messages (generated)."""
