"""State machine of a queue and its parts: pure, with time passed in and effects collected."""
