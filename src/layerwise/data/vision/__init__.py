"""Images: folders, datasets and digits as labelled, preprocessed examples."""
