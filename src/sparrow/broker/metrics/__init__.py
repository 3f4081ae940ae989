"""Metrics of a broker: the table of all metrics, and the collector of their values."""
