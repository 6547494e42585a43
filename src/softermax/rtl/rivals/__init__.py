"""Rivals in RTL: one file per design in `designs`, what they share in `parts`, all of them by name in `registry`.

All take a slice per cycle and stand for back-pressure on every stream, as Softermax's units and the FP16 baselines do. A design
is built in two units: what happens while scores come (``unnormed``), and what happens once a row's sum is known
(``normalization``). Streams have the same names everywhere: scores are ``slices``, or ``first_pass`` and ``second_pass``; what
waits between the units is ``kept``, what is known of a row that ended ``finished``, and what comes out ``probabilities``.

Constants of a design (scale, polynomial, tables) are wired, calibrated for the scores at hand. Hardware that loads them would be
larger: this is in every rival's favour. Sums have room for rows of `parts.LONGEST` elements.
"""
