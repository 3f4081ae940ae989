"""The routes, one module for each family; each has a function `router(door)`."""
