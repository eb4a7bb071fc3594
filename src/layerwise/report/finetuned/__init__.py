"""Models fine-tuned under plans: what each strategy leaves of every task, by the number of layers that it touches."""
