"""What is timed: kernels, attention, and where the time of a layer goes."""
