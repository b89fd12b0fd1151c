"""SASL mechanisms: the client's half of an authentication by PLAIN, SCRAM or OAUTHBEARER."""
