"""Other people's hardware softmaxes, bit by bit, behind one interface, beside ours.

>>> from softermax.rivals import get_rival
>>> ita = get_rival("ita")
>>> ita.compute([2.0, 1.0, 3.0])
array([0.1796875 , 0.08984375, 0.72265625])
>>> ita.about.needs.divider
True
"""

from softermax.rivals.designs.interface import About, Needs, Normalised, Rival
from softermax.rivals.registry import (
    PREFIX,
    all_designs,
    get_attention,
    get_rival,
    is_rival,
    options_of,
    rivals,
)

__all__ = [
    "PREFIX", "About", "Needs", "Normalised", "Rival", "all_designs", "get_attention", "get_rival", "is_rival", "options_of", "rivals",
]  # fmt: skip
