"""The Kafka frontend: existing Kafka clients connect to it unchanged.

`apis.py` is the table of served APIs, `connection.py` the flow control of one connection,
`dispatch.py` calls the handlers. `handlers/` has one module per family of APIs, `codec/` encodes
and decodes.
"""
