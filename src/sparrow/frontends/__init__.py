"""The doors: each translates one protocol into verbs of the broker. Doors never import each other."""
