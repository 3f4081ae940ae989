"""Groups of the native protocol: partitions change hands one by one, and members are notified."""
