"""Conversion between bytes and messages. kio has the schemas of all versions and decodes them;
handlers see only the newest version.

`schema` finds classes, `requests` converts a request of an old version to the class of its handler,
`responses` writes the response in the version of the request.
"""
