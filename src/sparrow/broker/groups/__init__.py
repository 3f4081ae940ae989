"""Consumer groups: `groups` is the roof over their kinds; `state` (native), `classic` and `consumer` decide, coordinators act, `offsets` remembers."""
