"""Routing: what is left of a plan, which node runs what, how long it may take, and whether too little is left."""
