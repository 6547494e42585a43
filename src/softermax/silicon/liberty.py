"""Liberty texts read and written: groups and attributes, nothing about what they mean."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_TOKEN = re.compile(r'"[^"]*"|[{}();:,]|[^\s{}();:,"\\]+')
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


@dataclass
class Group:
    """``name (arguments) { ... }``. A complex attribute such as ``values (...)`` is a group without a body."""

    name: str
    arguments: list[str]
    attributes: dict[str, str] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def all(self, name: str) -> list[Group]:
        return [group for group in self.groups if group.name == name]

    def first(self, name: str) -> Group | None:
        return next((group for group in self.groups if group.name == name), None)


def parse(text: str, source: str) -> Group:
    """The ``library`` group of a Liberty text. ``source`` names the file in errors."""
    clean = _COMMENT.sub(" ", text)
    tokens = _TOKEN.findall(clean)
    if len(tokens) < 4 or tokens[0] != "library":
        raise ValueError(f"{source}: not a Liberty file: it must start with library (name) {{")
    root = Group("", [])
    stack = [root]
    position, end = 0, len(tokens)
    try:
        while position < end:
            token = tokens[position]
            if token == "}":
                stack.pop()
                position += 1
            elif token in ";,":
                position += 1
            elif tokens[position + 1] == ":":
                stack[-1].attributes[token] = tokens[position + 2].strip('"')
                position += 3
                # A value may have several words ("1 + 2"); one without its semicolon ends with the line,
                # which shows as two plain words in a row that start the next attribute or group.
                while tokens[position] not in ";}" and tokens[position + 1] not in ":(":
                    position += 1
            elif tokens[position + 1] == "(":
                close = tokens.index(")", position + 2)
                group = Group(token, [t.strip('"') for t in tokens[position + 2 : close] if t != ","])
                stack[-1].groups.append(group)
                position = close + 1
                if position < end and tokens[position] == "{":
                    stack.append(group)
                    position += 1
            else:
                raise ValueError(f"{source}: not Liberty near {' '.join(tokens[position : position + 4])!r}")
    except IndexError:
        raise ValueError(f"{source}: the Liberty text ends in the middle of a group") from None
    if len(stack) != 1:
        raise ValueError(
            f"{source}: {len(stack) - 1} groups of the Liberty text are not closed: is it cut off?"
        )
    return root.groups[0]


def quoted(value: str) -> str:
    plain = value.replace(".", "").replace("_", "").replace("-", "").replace("+", "")
    return value if plain.isalnum() else f'"{value}"'


def write(group: Group, without: Collection[str] = (), depth: int = 0) -> str:
    """A group as Liberty text, its inner groups of some names left out."""
    pad = "  " * depth
    arguments = ", ".join(f'"{a}"' if group.name in ("values", "index_1", "index_2", "ff", "statetable") else a
                          for a in group.arguments)  # fmt: skip
    if not group.groups and not group.attributes:
        return f"{pad}{group.name} ({arguments});"
    lines = [f"{pad}{group.name} ({arguments}) {{"]
    lines += [f"{pad}  {key} : {quoted(value)};" for key, value in group.attributes.items()]
    lines += [write(g, without, depth + 1) for g in group.groups if g.name not in without]
    return "\n".join([*lines, pad + "}"])
