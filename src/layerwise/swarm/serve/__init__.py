"""HTTP front end of a swarm, for the official `openai` client. `layerwise.swarm.serve.run` starts it."""
