"""What the machine has: cores, quotas, memory, instruction sets."""
