"""Reads the delivery options of records from the log."""
