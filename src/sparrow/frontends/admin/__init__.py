"""Administration, once for all frontends: the table of operations (`operations.py`), and a module
for each family with the arguments and the functions of its rows.
"""
