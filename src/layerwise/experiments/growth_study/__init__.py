"""Growth schedules, their controls and uniform training at equal cost (`layerwise train growth-study`)."""
