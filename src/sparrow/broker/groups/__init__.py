"""Consumer groups: `state` decides, `assignor` balances, `offsets` remembers, `coordinator` is what the doors call."""
