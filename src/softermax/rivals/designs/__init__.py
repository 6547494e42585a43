"""The designs, one file each. A module here with ``DESIGNS`` is found by `softermax.rivals.registry`."""
