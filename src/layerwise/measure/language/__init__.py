"""Language: evaluation text, losses, and tests of what a language model knows."""
