"""The way to a connection: when a broker may be dialled, names, TCP, TLS, versions and credentials."""
