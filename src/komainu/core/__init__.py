"""Words every room shares. Pure: nothing here reads a clock, a file or a socket."""
