"""The client against a real broker, over real sockets."""
