"""A cluster in one process and in simulated time: whole brokers over the models of the ledger and
of the object store, clients that retry, and faults by seed.

Each node has an event loop of its own, and the clients have one. A scheduler lets one of them run
one iteration at a time, in an order drawn by the seed; time passes when none of them has anything
to do. So a node can be stopped in the middle of a commit, for any time, while the others go on.

`loops.py` has the loops, `nodes.py` a broker's life in a cluster, `clients.py` what clients do and
check, `world.py` the faults and the verdict.
"""
