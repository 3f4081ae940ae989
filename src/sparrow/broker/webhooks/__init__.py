"""Webhooks: subscribers of queues that are URLs; their settings and who may change them.
`frontends/webhook` delivers to them.
"""
