"""Dead letters: their format, how records get there, how they are read and sent back."""
