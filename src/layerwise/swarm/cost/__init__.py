"""Cost: what missing layers cost, in nats per token."""
