"""Softermax in PyTorch: words, gradients, operators, attention. `softermax.functional` and `softermax.nn` are its public face."""
