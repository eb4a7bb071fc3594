"""What is measured while a model trains: the clock, the pace, operations, and the trackers that are told of them."""
