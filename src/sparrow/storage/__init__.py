"""Durable logs of record batches. `store` is the seam; `local` the implementation on files."""
