"""What the scheduler says of jobs, as the pages show it."""
