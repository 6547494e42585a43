"""What is timed: rows, attention, training steps, and where the time of a layer goes."""
