"""The native frontend: translates `docs/protocol.md` to calls of the broker."""
