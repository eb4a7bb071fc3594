"""Ray: the cluster that a swarm, a sweep or a study is spread over. Nothing else of layerwise imports Ray."""
