"""The table as a page, and what of it a terminal shows. Silicon stands beside accuracy where rows have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.rivals.accuracy import LENGTHS

Row = Mapping[str, Any]

SILICON = ("unit", "width", "library", "area_um2", "pj_per_element", "slack_ns")
"""Keys of a row whose design was built: a design has as many rows as it was built in ways."""


WHOLE = "whole"
"""The unit of a row that is of a whole softmax."""


def designs(rows: Sequence[Row]) -> list[Row]:
    """One row per design."""
    return list({row["name"]: row for row in reversed(rows)}.values())[::-1]


def shown(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What a terminal has room for: of silicon the whole softmaxes."""
    columns = (
        "name",
        "kind",
        "l1_128",
        "l1_384",
        "l1_recorded",
        "kl_recorded",
        "mass_128",
        "mass_2048",
        "mass_8192",
    )
    built = ("width", "library", "area_um2", "pj_per_element")
    wholes = [row for row in rows if row.get("unit", WHOLE) == WHOLE]
    has_silicon = any("area_um2" in row for row in rows)
    return [
        {key: row.get(key) for key in (*columns, *(built if has_silicon else ()))}
        for row in (wholes if has_silicon else designs(rows))
    ]


def with_silicon(rows: Sequence[Row], known: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of accuracy with what was measured of the same designs in silicon."""
    built = {
        name: [row for row in known if row["name"] == name and "area_um2" in row] for name in _names(known)
    }
    found: list[dict[str, Any]] = []
    for row in rows:
        parts = [{key: other[key] for key in SILICON if key in other} for other in built.get(row["name"], [])]
        found += [dict(row) | part for part in parts or [{}]]
    return found


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["name"]) for row in rows))


def rivals_page(rows: Sequence[Row], pictures: Sequence[str] = ()) -> str:
    """Markdown: error, mass, what each needs, and silicon where there is some, with its pictures."""
    single = designs(rows)
    recorded = "l1_recorded" in single[0]
    lines = [
        "# Softmaxes for hardware, side by side",
        "",
        "L1 is the sum of absolute differences to the softmax per row, KL that of the normalised result, in nats; both are means over",
        "rows. Gaussian rows: 128 elements of deviation 1 and of 3, 384 of 2, 2048 of 1. `:row-scaled` and `:deferred` are rivals",
        "with our normalisation (A7, A8) after their own exponentials.",
        "",
        *_table(
            ["design", "L1, 128", "L1, 128 wide", "L1, 384", "L1, 2048"]
            + (["L1, recorded", "KL, recorded"] if recorded else []),
            [
                [f"`{row['name']}`"]
                + [f"{row[f'l1_{column}']:.3f}" for column in ("128", "128_wide", "384", "2048")]
                + ([f"{row['l1_recorded']:.3f}", f"{row['kl_recorded']:.4f}"] if recorded else [])
                for row in single
            ],
        ),
        "",
        "## Mass that a row keeps",
        "",
        "Gaussian rows of deviation 1, by their length. 1 is right.",
        "",
        *_table(
            ["design", "out", *(str(length) for length in LENGTHS)],
            [
                [f"`{row['name']}`", row["gives"], *(f"{row[f'mass_{length}']:.3f}" for length in LENGTHS)]
                for row in single
            ],
        ),
        "",
        "## What each needs",
        "",
        "Multipliers and table entries are per lane, as far as the sources say.",
        "",
        *_table(
            [
                "design",
                "in",
                "max",
                "second pass",
                "divider",
                "multipliers",
                "table",
                "retraining",
                "known from",
            ],
            [
                [f"`{row['name']}`", row["takes"], *_needs(row["needs"]), row["confidence"]]
                for row in single
                if row["kind"] != "ours" and ":" not in row["name"]
            ],
        ),
        "",
    ]
    built = [row for row in rows if "area_um2" in row]
    if built:
        lines += [
            "## Silicon",
            "",
            *(f"![Error against area and energy]({picture})" for picture in pictures),
            "",
            *_table(
                ["design", "unit", "lanes", "library", "area, um2", "pJ per element", "slack, ns"],
                [
                    [
                        f"`{row['name']}`",
                        row.get("unit", ""),
                        str(row["width"]),
                        row["library"],
                        f"{row['area_um2']:.0f}",
                        f"{row['pj_per_element']:.3f}",
                        f"{row['slack_ns']:.2f}",
                    ]
                    for row in built
                ],
            ),
            "",
        ]
    lines += ["## Sources and claims", ""]
    told: set[str] = set()
    for row in single:
        if row["kind"] == "rival" and row["title"] not in told:
            told.add(row["title"])
            lines.append(f"- **{row['title']}**: {'; '.join(row['sources'])}.")
            lines += [f"  Its authors: {'; '.join(row['claims'])}."] if row["claims"] else []
    return "\n".join(lines) + "\n"


def _needs(needs: Mapping[str, Any]) -> list[str]:
    flags = ["yes" if needs[key] else "no" for key in ("row_max", "second_pass", "divider")]
    return [*flags, str(needs["multipliers"]), str(needs["table"]), "yes" if needs["retraining"] else "no"]


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]
