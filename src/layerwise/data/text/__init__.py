"""Text: corpora, documents, tokenizers and windows of tokens."""
