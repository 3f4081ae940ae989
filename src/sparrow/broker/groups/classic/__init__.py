"""Groups of the classic protocol: members stop together, the leader assigns."""
