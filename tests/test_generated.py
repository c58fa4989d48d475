"""The synchronous half of the drivers is made from the asyncio half (`tools/generate.py`)."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.values import for_each
from tools import describe, generate

pytestmark = pytest.mark.lint


@for_each("name", generate.NAMES)
def test_a_product_is_up_to_date(name: str) -> None:
    """`make generate` would change nothing."""
    made = generate.generated(name, (describe.DRIVERS / name).read_text("utf-8"))
    assert generate.product_of(name).read_text("utf-8") == made


@for_each(("name", "role"), [(describe.KINDS, "param error_rate"), (describe.INFO, "ivar error_rate")])
def test_docstrings_have_the_texts_of_the_fields(name: str, role: str) -> None:
    """A docstring lists each option or field with its text; a change of the list alone is undone."""
    text = (describe.DRIVERS / name).read_text("utf-8")
    changed = text.replace(f":{role}: the", f":{role}: some")
    assert describe.described(name, changed) == text != changed


def test_a_new_method_appears_in_both_halves() -> None:
    """A method that is added to the source is made without `async` and `await`, docstring included."""
    method = '''
    async def twice(self, pipe: AnyPipeline, item: I) -> None:
        """Queue an add twice: `await seen.twice(pipe, item)`."""
        await self.queue_add(pipe, item)
        await self.queue_add(pipe, item)
'''
    text = (describe.DRIVERS / "aio_queueing.py").read_text("utf-8") + method
    expected = re.sub(r"\b(async|await) ", "", method)
    assert generate.generated("aio_queueing.py", text).endswith(expected)


def test_a_name_that_does_not_occur_is_refused() -> None:
    """A replacement that replaces nothing is an error, and names the file and the name."""
    text = (describe.DRIVERS / "aio_queueing.py").read_text("utf-8").replace("AsyncDriven", "Driven")
    with pytest.raises(SystemExit, match=r"^aio_queueing\.py: these names do not occur: AsyncDriven$"):
        generate.generated("aio_queueing.py", text)


@for_each("name", generate.NAMES)
def test_no_mark_is_in_the_head_of_a_function(name: str) -> None:
    """A function's signature and docstring belong to one half, or to both."""
    text = (describe.DRIVERS / name).read_text("utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.body[0].lineno if ast.get_docstring(node) else getattr(node.returns, "end_lineno", 0)
            head = lines[node.lineno - 1 : last]
            assert not [line for line in head if re.match(r" *# (asyncio:|sync:|both\.)", line)]


MARKED = """\
    # asyncio: a reason
    async def a(): ...
        # sync: @b
        # sync: def a():
        # sync:     pass
    # both.
    x = 1
"""


def test_marked_lines_belong_to_one_half() -> None:
    """Lines of the synchronous half are indented as the comment that begins the block."""
    made = "".join(generate.of_sync(MARKED.splitlines(keepends=True)))
    assert made == "    @b\n    def a():\n        pass\n    x = 1\n"


@for_each(
    "text", ["# asyncio:\nx = 1\n", "# both.\n", "# sync: x = 1\n", "# asyncio:\n# asyncio:\n# both.\n"]
)
def test_marks_without_their_partners_are_refused(text: str) -> None:
    """Each block begins and ends."""
    with pytest.raises(generate.GenerationError):
        list(generate.of_sync(text.splitlines(keepends=True)))


def test_types_of_coroutines_are_unwrapped() -> None:
    """A type of what is awaited becomes the type of the answer."""
    text = "def f(g: Callable[P, Coroutine[Any, Any, list[R]]], i: I | AsyncIterable[I]) -> Awaitable[T]"
    assert generate.unwrapped(text) == "def f(g: Callable[P, list[R]], i: I) -> T"
