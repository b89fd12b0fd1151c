"""Producer identities, and transactions: the state machine, what drives it, and the coordinators that it asks."""
