"""The reproduction of the paper: its stages, and their run."""
