"""A real Redis server that a process starts for itself, and that ends with it."""
