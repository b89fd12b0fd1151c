"""The rooms that the commands share: options of a connection, running and ending, bytes as text, records as lines."""
