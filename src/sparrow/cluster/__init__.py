"""Cluster mode: brokers over PostgreSQL (the ledger) and an object store. `ledger` and `objects`
are the seams.
"""
