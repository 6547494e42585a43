"""Softermax inside other people's models: the public face of `softermax.models`."""
