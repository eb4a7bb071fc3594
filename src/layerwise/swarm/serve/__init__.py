"""HTTP front end of a swarm (`layerwise.swarm.serve.run`), for the official `openai` client; FastAPI is optional."""
