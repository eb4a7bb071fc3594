"""The edge of a swarm: an HTTP server that the official `openai` client works with, and what a service needs.

`layerwise.swarm.serve.run` starts it. The files that need FastAPI are imported by it alone, so that this package can be
imported without it.
"""
