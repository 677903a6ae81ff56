"""Everything that speaks to the world outside: Slurm, the kernel's log, journald, Komainu's own server."""
