"""Byte and request rates of users and clients, and what they are held back by."""
