"""Cost: floating-point operations, seconds and bytes."""
