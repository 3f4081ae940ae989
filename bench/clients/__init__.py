"""The work of client processes, for each broker: publish, consume, work, all with the same
signature, so that workloads can run any of them.

Every function takes what it needs and a `Start` as its last argument, and returns a `Span`.
"""
