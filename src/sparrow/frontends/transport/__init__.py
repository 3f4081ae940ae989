"""The part of every frontend that handles connections: their core, memory, admission and TLS."""
