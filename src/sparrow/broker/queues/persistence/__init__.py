"""Entries of the meta store that hold queues and the state of their records."""
