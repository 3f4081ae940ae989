"""The protocols of five other small brokers, without I/O: bytes in, events out, and back
(`docs/seeds.md`).
"""
