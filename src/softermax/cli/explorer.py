"""explore: Softermax on a local page."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from softermax.cli.output import print_json
from softermax.results import Envelope
from softermax.spec import get_spec, spec_from_dict

if TYPE_CHECKING:
    from softermax.cli import Commands


def register(commands: Commands) -> None:
    command = commands.add(
        "explore",
        explore,
        "a local page: drag scores, move widths, see every step",
        [
            "explore",
            "explore --open",
            "explore --spec row-scaled --scores 2 1 x 3.5",
            "explore --spec paper+fold:deferred",
            "explore --front out/search/search.json",
        ],
    )
    command.add_argument(
        "--spec",
        default="paper",
        help="what the page opens with: a preset, with +fold for base e and :deferred for deferred normalisation, "
        "or a .json file (default: %(default)s)",
    )
    command.add_argument("--scores", nargs="+", default=[], help="numbers, x where masked")
    command.add_argument(
        "--front", metavar="FILE", help="the search.json of a search: its points, to be clicked"
    )
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    command.add_argument("--port", type=int, default=8642, help="0 takes a free one (default: %(default)s)")
    command.add_argument(
        "--allow-remote", action="store_true", help="permit a --host that other machines can reach"
    )
    command.add_argument("--open", action="store_true", help="open the page in the browser")


def explore(args: argparse.Namespace) -> int:
    from softermax.explorer.request import read_scores
    from softermax.explorer.rivals import built_points
    from softermax.explorer.server import Explorer
    from softermax.explorer.state import fragment
    from softermax.report import stored

    scores = [_score(text) for text in args.scores]
    if scores:
        read_scores({"scores": scores})
    state = fragment(get_spec(args.spec), scores)
    front = _front(args.front) if args.front else []
    stored_rivals = stored.load("rivals")
    built = built_points(stored_rivals.rows) if stored_rivals else []
    with Explorer(args.host, args.port, args.allow_remote, front, built) as server:
        url = server.url + (f"#{state}" if state else "")
        if args.json:
            print_json({"url": url})
        else:
            print(url, flush=True)
            if not args.quiet:
                print("Ctrl-C ends it", flush=True)
        if args.open:
            import webbrowser

            webbrowser.open(url)
        server.serve_forever()
    return 0


def _front(path: str) -> list[dict[str, Any]]:
    """The points of a search's result: what the page shows of them."""
    needed = {"name", "area", "energy", "l1", "front", "trial", "spec"}
    found = Envelope.load(path)
    rows = found.rows
    if not rows or not all(needed <= set(row) for row in rows):
        raise ValueError(
            f"--front {path}: not a search's result; softermax search --out FOLDER writes search.json"
        )
    specs = [dict(row) | {"spec": spec_from_dict(row["spec"]).to_dict()} for row in rows]
    return [*specs, *found.notes.get("rivals", [])]


def _score(text: str) -> float | None:
    if text == "x":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--scores {text}: must be numbers, and x where masked") from None
