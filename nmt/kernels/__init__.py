"""Kernels in Triton for GPUs, and where each of them serves."""
