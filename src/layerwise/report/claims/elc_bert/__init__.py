"""The claims of the ELC-BERT paper (Charpentier and Samuel 2023)."""
