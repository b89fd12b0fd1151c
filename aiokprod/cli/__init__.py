"""The commands `aiokprod demo`, `aiokprod cluster` and `aiokprod audit`."""
