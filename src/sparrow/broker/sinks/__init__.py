"""Sinks: batches of a data pipeline that appear in topics once, and whole. Begin at `state.py` for the rules, `coordinator.py` for who calls them."""
