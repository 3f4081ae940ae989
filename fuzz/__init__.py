"""Coverage-guided fuzzing with atheris: `make fuzz`."""
