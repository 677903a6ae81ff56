"""To be filled in this room."""
