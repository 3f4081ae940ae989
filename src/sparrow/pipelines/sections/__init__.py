"""Sections of a pipeline's file: each is declared once, as kinds of values that are read into the
classes of the model.

Every fault of a single value is found here, all at once; faults between several values, or with the
world outside, are found by `checks`.
"""
