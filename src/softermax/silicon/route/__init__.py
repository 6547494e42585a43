"""Units placed and routed: OpenROAD makes the layout of a mapped netlist, and our own simulator measures what came of it."""
