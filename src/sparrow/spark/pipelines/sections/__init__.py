"""What may stand in a pipeline's file: each section once, as kinds of values that are read to the classes of the model.

Whatever is wrong with one value by itself is found here, and all of it at once; what concerns several values, or the world, is found by `checks`.
"""
