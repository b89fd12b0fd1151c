"""SASL mechanisms: the client's half of an authentication by PLAIN or SCRAM."""
