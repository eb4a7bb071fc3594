"""The report of pre-trained models: what they learned, what they know, what they cost."""
