"""Configurations by Kafka's names: of topics, of the broker, of groups; described, changed,
kept.
"""
