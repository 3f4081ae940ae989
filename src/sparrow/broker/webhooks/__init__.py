"""Webhooks: subscribers of queues that are URLs; what they are and who may change them. `frontends/webhook` delivers to them."""
