"""The one format: Kafka's record batch v2. Pure functions over bytes; no loop, no files, no
clock.
"""
