"""The explorer: a local page on which one row goes through Softermax word by word.

``compute`` answers what the page asks, by the golden model; ``verilog`` makes the units' source;
``state`` writes links that the page reads; ``server`` speaks HTTP; ``static`` holds the page itself.
"""
