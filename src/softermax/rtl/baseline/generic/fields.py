"""What every component first finds out about a half: its class, exponent and significand."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from softermax.rtl.baseline.generic import model

NAN = Const(model.NAN, 16)


@dataclass(frozen=True)
class Unpacked:
    sign: Value
    exponent: Value
    """Biased, 1 for subnormal numbers and zeros."""
    significand: Value
    """Eleven bits, the first one zero for subnormal numbers and zeros."""
    is_zero: Value
    is_infinite: Value
    is_nan: Value


def unpack(m: Module, word: Value, name: str) -> Unpacked:
    def flag(what: str, value: Value) -> Signal:
        signal = Signal(name=f"{name}_{what}")
        m.d.comb += signal.eq(value)
        return signal

    exponent, fraction = word[10:15], word[:10]
    normal, last = flag("normal", exponent.any()), flag("last", exponent.all())
    none = flag("none", ~fraction.any())
    return Unpacked(
        word[15],
        Cat(exponent[0] | ~normal, exponent[1:]),
        Cat(fraction, normal),
        flag("zero", ~normal & none),
        flag("infinite", last & none),
        flag("nan", last & ~none),
    )


def pack(sign: Value, magnitude: Value, infinite: Value, nan: Value) -> Value:
    """A half of a rounded magnitude: exponent and fraction. One that was rounded up to the last exponent is infinite as it is."""
    fraction = magnitude[:10] & ~infinite.replicate(10)
    exponent = magnitude[10:15] | infinite.replicate(5)
    return Mux(nan, NAN, Cat(fraction, exponent, sign))
