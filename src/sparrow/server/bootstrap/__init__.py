"""What the configuration file declares: topics, queues with subscribers and webhooks, access rules, pipelines.

One module for each reads it and says what is wrong, with the place in the file; `apply` brings the broker to what they say, at each start.

    missing               is made
    named in the file     is brought to what the file says, and logged
    not named             is left as it is: settings, subscribers, whole queues
    cannot be changed     (a queue's start, fewer partitions) stays, with a warning

Nothing is ever deleted. A second start with the same file writes nothing.
"""
