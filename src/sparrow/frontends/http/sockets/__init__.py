"""WebSockets: publish, subscribe and acknowledge over one connection, in JSON.

`client_frames.py` and `server_frames.py` are the frames of both sides, `window.py` is the flow
control of one subscription. `protocol.py` is the connection and `session.py` dispatches its frames;
`publishes.py`, `topic_channel.py` and `queue_channel.py` handle them.
"""
