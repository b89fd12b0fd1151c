"""The commands `aiokprod demo`, `aiokprod cluster`, `aiokprod audit` and `aiokprod transactions`."""
