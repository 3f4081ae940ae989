"""Publishing once under a key that the client chose: the stored state of such a publish, and
recovery after a crash in the middle.
"""
