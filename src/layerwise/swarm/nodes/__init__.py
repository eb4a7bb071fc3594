"""Nodes, which hold and run layers, and a simulated cluster of nodes in one process."""
