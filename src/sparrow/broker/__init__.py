"""The rules: topics, publishing, reading, groups, authorization. No socket, no SQL, no protocol's bytes.

`broker.Broker` has one verb for each thing that a door may ask for.
"""
