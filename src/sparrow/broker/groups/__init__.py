"""Consumer groups. `registry` knows all groups; each kind has a coordinator and pure rules
(`native`, `classic`, `consumer`, `share`); `offsets` holds what was committed.
"""
