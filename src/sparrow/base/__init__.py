"""Modules for every layer: errors, identifiers, the clock, declared options. Imports nothing of
Sparrow.
"""
