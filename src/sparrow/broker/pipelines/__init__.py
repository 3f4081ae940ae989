"""Reports of streaming programs: the progress of pipelines, and the groups of streams. In memory
only.
"""
