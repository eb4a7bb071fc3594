"""The claims about how unlike the layers of one model are."""
