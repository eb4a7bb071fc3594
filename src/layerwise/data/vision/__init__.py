"""Images: folders, datasets and digits as labeled, preprocessed examples."""
