"""The generator of `aiokprod/wire/messages` and `aiokprod/wire/codes.py` from Kafka's own definitions."""
