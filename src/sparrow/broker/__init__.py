"""The rules: topics, publishing, reading, groups, authorization. No socket, no SQL, no protocol's
bytes.

`broker.Broker` starts the parts and offers services with one method for each operation of a
frontend.
"""
