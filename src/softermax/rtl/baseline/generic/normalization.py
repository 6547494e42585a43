"""The Normalization unit of generic components: a whole divider in every lane."""

from __future__ import annotations

from softermax.rtl.baseline import normalization
from softermax.rtl.baseline.generic.lanes import Divide


class Normalization(normalization.Normalization):
    """The streams of the lean unit, with generic dividers in it."""

    divider = Divide
    latency = Divide.stages
