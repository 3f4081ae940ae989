"""Work queues: state per record, on top of the log.

`rules/state.py` has the rules, `queue.py` runs a queue, `registry.py` has all queues by name, and
`service.py` is what frontends call.
"""
