"""Routes, one module for each group; each has a function `router(frontend)`."""
