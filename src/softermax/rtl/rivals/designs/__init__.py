"""One file per rival: its arithmetic, as lanes, row units and codes of the shared units."""
