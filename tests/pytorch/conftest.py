"""The native core's paths and specs, for the operators around it."""

from kernels.conftest import path, rng, spec

__all__ = ["path", "rng", "spec"]
