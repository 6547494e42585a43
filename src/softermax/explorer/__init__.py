"""The explorer: a local page on which one row goes through Softermax word by word.

``request`` reads what the page asks; ``compute`` answers by the golden model, ``silicon`` from what was measured,
``verilog`` with a unit's source; ``state`` writes links that the page reads; ``server`` speaks HTTP; ``static`` holds
the page itself.
"""
