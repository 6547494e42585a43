"""The processing element in silicon: what it is measured on, what it costs, and why."""
