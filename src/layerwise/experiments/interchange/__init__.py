"""Exchange with other tools: plans in their forms, and models on the hub with a card."""
