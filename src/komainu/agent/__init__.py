"""The process on every node: it judges its own node, keeps the verdict the gate reads, and tells the server."""
