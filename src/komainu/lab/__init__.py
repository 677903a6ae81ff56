"""A make-believe cluster: GPUs, kernel logs and a scheduler that the real agent, gate and server run against."""
