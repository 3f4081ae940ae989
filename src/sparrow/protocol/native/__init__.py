"""Sparrow's own protocol: frames, messages, and one state machine for both sides. See
`docs/protocol.md`.
"""
