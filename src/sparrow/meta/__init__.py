"""Small entries that must survive. `store` is the seam; `sqlite` the embedded implementation."""
