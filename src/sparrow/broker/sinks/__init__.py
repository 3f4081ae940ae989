"""Sinks: batches of a data pipeline that appear in topics once, and whole. Begin at `state.py` for
the rules, and at `coordinator.py` for how they are carried out.
"""
