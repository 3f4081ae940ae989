"""Sparrow's own protocol: frames, messages, and one state machine for both sides. `docs/protocol.md` draws it."""
