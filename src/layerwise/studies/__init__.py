"""One folder per verb: its options, its steps, its findings and its page."""
