"""Groups of KIP-848: the broker assigns, members reconcile by heartbeats."""
