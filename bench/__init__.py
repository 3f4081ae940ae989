"""Measurements: `make bench` (five runs each, medians) and `make bench-quick` (one run each)."""
