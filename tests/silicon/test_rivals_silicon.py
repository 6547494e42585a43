"""Rivals through the silicon flow: a small unit for real, and how whole softmaxes add up."""

from __future__ import annotations

import numpy as np
import pytest

from softermax.rtl.rivals.registry import built, get_hardware
from softermax.silicon.flow import measure_unit
from softermax.silicon.library import Library
from softermax.silicon.rivals import RivalUnit, rival_orders
from softermax.silicon.stimuli import gaussian


def unit_of(name: str, unit: str, lanes: int) -> RivalUnit:
    hardware = get_hardware(name)
    design = hardware.model.calibrated(np.array([8.0]))
    return RivalUnit(hardware.fitted(design, lanes), lanes, unit)


def test_a_small_unit_from_rtl_to_energy(nangate45: Library) -> None:
    """The netlist has the words of the rival's model in both modes."""
    result = measure_unit(
        unit_of("ita", "normalization", 2), nangate45, 2.0, [gaussian(4, 32)], copies=2, rows=2
    )
    assert result.meets
    modes, rows, slices = 2, 4, 16
    assert result.words_equal == modes * rows * slices
    assert (result.unit, result.design, result.width) == ("normalization", "rival:ita", 2)


def test_orders_have_every_unit_at_every_width_and_ours_beside() -> None:
    orders = rival_orders(["all"], ["nangate45"], [16, 32], None, None, gaussian(12))
    for name, hardware in built().items():
        found = [
            (order.unit.name, order.unit.width)
            for order in orders
            if isinstance(order.unit, RivalUnit) and order.unit.rival.name == name
        ]
        assert found == [(unit, width) for width in (16, 32) for unit in hardware.units]
    assert [order.unit.shown for order in orders if order.unit.shown.startswith("paper")] == [
        "paper", "paper", "paper-32", "paper-32",
    ]  # fmt: skip


def test_an_unknown_rival_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="rival 'nobody': in RTL it must be one of"):
        rival_orders(["nobody"], ["nangate45"], [16], None, None, gaussian(12))
