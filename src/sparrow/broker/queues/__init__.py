"""Work queues: per-record state on the log. `state.py` has the rules, `queue.py` the life, `queues.py` the names."""
