"""What texts are read from beside plain files: packed files, files of rows, and datasets of the hub."""
