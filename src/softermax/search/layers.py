"""A spec for each layer, or each head, by its own rows.

All layers share one piece of hardware, so what a layer may have of its own is what a wider unit can be told: words. Here each
layer is searched by itself, and the cheapest spec that is as accurate on that layer's rows as the limit asks for is taken; the result
says what hardware of each would cost, and what one for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from softermax.search.front import Found, pick
from softermax.search.objectives import RecordedRows, layers_of
from softermax.spec import LOG2E


@dataclass(frozen=True)
class Part:
    """A layer, or a head of one, and the range of its scores."""

    layer: int
    head: int | None
    rows: RecordedRows

    @property
    def name(self) -> str:
        return f"layer-{self.layer}" + ("" if self.head is None else f"-head-{self.head}")

    @property
    def integer_bits(self) -> int:
        """Of an input word that clips no more than one of a thousand scores that count, with the fold."""
        kept = np.abs(self.rows.scores[self.rows.mask]) * LOG2E
        return int(np.clip(np.ceil(np.log2(max(float(np.quantile(kept, 0.999)), 1.0))) + 1, 4, 8))


def parts_of(rows: RecordedRows, by_head: bool) -> list[Part]:
    """Layers, or heads, that rows were recorded of."""
    found = []
    for layer in layers_of(rows):
        own = rows.of_layer(layer)
        heads: Sequence[int | None] = sorted({int(head) for head in own.head}) if by_head else [None]
        found += [Part(layer, head, rows.of_layer(layer, head)) for head in heads]
    return found


def search_parts(
    parts: Sequence[Part],
    find: Callable[[Part], Sequence[Found]],
    budget: Mapping[str, float],
    max_loss: float | None,
) -> dict[str, Found]:
    """What is picked for each part; without limits, the cheapest that loses no more than ``paper+fold`` does on its rows."""
    picked: dict[str, Found] = {}
    for part in parts:
        points = find(part)
        most = max_loss
        if most is None and not budget:
            most = next(point.figures.l1 for point in points if point.name.startswith("paper+fold"))
        found = pick(points, budget, most)
        if found is None:
            raise ValueError(
                f"{part.name}: no spec that was found is within the limits; permit more, or search longer"
            )
        picked[part.name] = found
    return picked
