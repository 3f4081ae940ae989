"""The server's side of HTTP/1.1 without I/O (RFC 9110, RFC 9112): bytes in, requests out, and
responses back to bytes.
"""
