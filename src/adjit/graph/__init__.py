"""Recording: what an op is, the nodes it leaves, and the checks made at the user's line."""
