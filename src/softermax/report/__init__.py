"""Tables, plots and pages: what a reader sees of the results."""
