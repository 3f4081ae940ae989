"""The audit: one event for each administrative act and each refusal, to a logger and, if
configured, to a topic.
"""
