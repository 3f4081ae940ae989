"""One module for each family of APIs: a request in, verbs of the broker, a response out. No rules here."""
