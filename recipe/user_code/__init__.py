"""A user's reward and environment: loaded, tried before a start, and called."""
