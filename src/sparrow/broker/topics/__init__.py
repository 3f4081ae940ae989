"""Topics: the registry, the service, and what users see of a topic."""
