"""Share groups (KIP-932): the broker assigns, members learn it by heartbeats, and several may have
the same partition.
"""
