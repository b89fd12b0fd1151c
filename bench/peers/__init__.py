"""The clients under measurement: each module has WAYS, from a way of sending to what does it."""
