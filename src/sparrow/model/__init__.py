"""Descriptions of topics, groups, queues and everything else that users read, each declared once:
the broker fills them, the client returns them, and HTTP shows them.

They are frozen structs, encoded as they are: the members of a response on the wire are the fields
of its struct, in their order. HTTP differs from the native protocol in three places, where its
routes say so: offsets are objects and not short arrays; keys, values and headers of records are
text where they are text; and lists of topics have `TopicListing` alone.
"""
