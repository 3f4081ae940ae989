"""Access: users and their credentials, access rules, and the authorizer that every operation
asks.
"""
