"""The one error that ends a connection."""


class MalformedRequest(Exception):
    """Bytes that are no request, or a request that must not be made now. The connection ends, as Kafka's does."""
