"""Declarations of the configuration file: topics, queues with subscribers and webhooks, access
rules, pipelines.

One module for each reads it and reports faults with their location in the file; `apply` brings the
broker to what they declare, at each start.

    missing               is created
    named in the file     is brought to what the file says, and logged
    not named             is left as it is: settings, subscribers, whole queues
    cannot be changed     (a queue's start, fewer partitions) stays, with a warning

Nothing is ever deleted. A second start with the same file writes nothing.
"""
