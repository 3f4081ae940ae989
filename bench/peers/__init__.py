"""Other brokers, measured beside Sparrow in the same run: found if they are installed, started for
one measurement, and ended by their process.
"""
