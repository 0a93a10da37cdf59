"""The Triton kernels beside what they stand in for: differences, registers, seconds."""
