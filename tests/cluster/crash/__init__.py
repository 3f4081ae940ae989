"""Two brokers over PostgreSQL and an S3 server, each reached through links that can be cut; faults
by seed, and the loads of `tests/crash`.
"""
