"""What a unit that can be exported says of itself: its name, its parameters, its timing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from amaranth.lib import wiring

from softermax.spec import AnySpec


@dataclass(frozen=True)
class Event:
    """The transfers of one stream while a row of two slices goes through a unit that nothing holds up."""

    stream: str
    cycles: tuple[int, ...]
    meaning: str


class Unit(wiring.Component):
    """A component made from a spec. `softermax.rtl.units` has them by name."""

    name: ClassVar[str]
    """As `create` and the command line call it."""
    module_name: ClassVar[str]
    """As its Verilog is called."""
    options: ClassVar[tuple[str, ...]]
    """Parameters of the constructor, beside the spec, that `create` takes."""
    cycles_per_slice: ClassVar[int] = 1

    spec: AnySpec
    lanes: int

    @classmethod
    def description(cls) -> str:
        """The first paragraph of its docstring, in one line."""
        return " ".join((cls.__doc__ or "").split("\n\n")[0].split())

    @property
    def longest_row(self) -> int | None:
        """Elements that a row may have; None for any number."""
        return None

    def parameters(self) -> dict[str, Any]:
        """What it was made with, the spec's fields last."""
        raise NotImplementedError

    def timing(self) -> list[Event]:
        """How a row of two slices goes through, stream by stream, the first slice in cycle 0."""
        raise NotImplementedError
