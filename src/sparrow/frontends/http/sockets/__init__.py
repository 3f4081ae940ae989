"""WebSockets: publish, subscribe and acknowledge over one connection, in JSON.

`messages.py` is what clients send, `answers.py` what they get, `window.py` what one subscription may be sent. `protocol.py` is the connection, `session.py` finds out what a
frame wants; `publishes.py`, `reading.py` and `leasing.py` do it.
"""
