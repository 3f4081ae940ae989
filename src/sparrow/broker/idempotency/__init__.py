"""Publishing once under a key that the client chose: what is kept of it, and how a crash in the middle is told from none."""
