"""Cost: floating-point operations, seconds, bytes, and what is reached at each."""
