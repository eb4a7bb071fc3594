"""History: the earlier states that models with learned layer weights read."""
