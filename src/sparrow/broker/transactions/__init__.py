"""Transactions (KIP-98, KIP-360, KIP-447, KIP-890): begin at `state.py` for the rules, and at
`coordinator.py` for how they are carried out.
"""
