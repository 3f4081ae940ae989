"""Quotas: limits of the byte and request rates of users and clients."""
