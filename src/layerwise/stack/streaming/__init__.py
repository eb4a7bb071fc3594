"""Models larger than memory: the weights of a few layers are held at a time, those of the others stay on the disk."""
