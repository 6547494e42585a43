"""All benchmarks of the native kernels, as JSON and plots in a folder: `python benchmarks/kernels.py out/kernels`."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from softermax.cli import main
from softermax.files import write_text


def run(folder: Path, threads: int = 1) -> None:
    for what in ("kernels", "attention", "training"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = main(
                ["bench", what, "--threads", str(threads), "--json", "--plot", str(folder / f"{what}.png")]
            )
        if code:
            sys.exit(code)
        write_text(folder / f"{what}.json", printed.getvalue())
        print(folder / f"{what}.json")


if __name__ == "__main__":
    run(Path(sys.argv[1] if len(sys.argv) > 1 else "out/kernels"))
