"""Which nodes there are, what is in them, and in one word how each stands."""
