"""Generator of `aiokprod/wire/messages` from Kafka's own message definitions. Not needed at run time."""
