"""Topics: the registry, the service, and the descriptions for users."""
