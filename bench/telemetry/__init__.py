"""What the machine did meanwhile: NVML and the host."""
