"""The docstrings that list options and fields; `make generate` writes them.

The docstring of a public class has the text of each option of its constructor, which is copied from
`operations/options.py`; that of `FilterInfo` has the text of each field.  Editors show a text at its field.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Final

DRIVERS: Final = Path(__file__).parents[1] / "bloomredis" / "drivers"
KINDS: Final = "aio_kinds.py"
INFO: Final = "../operations/whole/info.py"
TEXTS: Final = {KINDS: "../operations/options.py", INFO: INFO}
"""The files with classes whose docstrings list fields, and the files with the texts of the fields."""

DESCRIBED: Final = re.compile(
    r"^(    :param name: .*?(?=\n    :))(?:\n    :param .*?(?=\n    :))*\n(    :raises.*?Unpack\[(\w+))",
    re.DOTALL | re.MULTILINE,
)
"""The parameters in the docstring of a class, up to the typed dictionary of its constructor."""
IVARS: Final = re.compile(r"    :ivar .*?(?=\n    \"\"\")", re.DOTALL)
"""The fields in the docstring of a class."""


def field_texts(path: Path) -> dict[str, dict[str, str]]:
    """Return the texts below the fields of each class: the class's own first, then those of its base."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            own = {
                field.target.id: text.value.value
                for field, text in zip(node.body, node.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
            base = ast.unparse(node.bases[0]).partition("[")[0] if node.bases else ""
            found[node.name] = own | found.get(base, {})
    return found


def listed(role: str, texts: dict[str, str]) -> str:
    """Return the texts of fields as lines of a docstring."""
    lines = list[str]()
    for name, text in texts.items():
        one = re.sub(r"(\.?)\n +", lambda end: end[1] + " " * (1 + bool(end[1])), text)
        lines += textwrap.wrap(
            f":{role} {name}: {one[0].lower()}{one[1:]}", 110, initial_indent="    ",
            subsequent_indent="        ", break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
    return "\n".join(lines)


def described(name: str, text: str) -> str:
    """Return the source of classes with the texts of the fields in the docstrings."""
    texts = field_texts(DRIVERS / TEXTS[name])
    if name == KINDS:
        return DESCRIBED.sub(lambda own: f"{own[1]}\n{listed('param', texts[own[3]])}\n{own[2]}", text)
    return IVARS.sub(lambda _: listed("ivar", texts["FilterInfo"]), text)
