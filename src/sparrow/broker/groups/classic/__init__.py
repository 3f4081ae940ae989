"""Groups of the classic protocol: all members stop for a rebalance, and the leader assigns."""
