"""Producer identities, and (later) transactions."""
