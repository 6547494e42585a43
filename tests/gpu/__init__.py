"""Triton kernels, in the interpreter."""
