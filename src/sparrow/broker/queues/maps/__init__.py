"""Compact maps of integers for millions of records. Pure."""
