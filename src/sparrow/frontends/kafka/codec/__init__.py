"""Bytes ⇄ messages. kio has the schemas of all versions and decodes; handlers see the newest version alone.

`schema` finds classes, `requests` lifts a request of an old version to the class that its handler is written for, `responses`
writes the handler's answer as the version that the client asked for.
"""
