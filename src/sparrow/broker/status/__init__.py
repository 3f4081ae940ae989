"""The state of the broker for people: what is well, what needs attention, and what was before."""
