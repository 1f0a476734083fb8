"""Tables and lines on the output stream, fitted to its width without breaking words.

Thread: application.

Output to a pipe or a file is never wrapped, so that grep sees whole lines. On a terminal, cells wrap between words. If
even the longest words do not fit next to each other, each row becomes lines with its headings.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

UNWRAPPED: Final = 1_000_000  # columns, without a terminal


def output() -> Console:
    """The output stream. Forced colours do not turn a pipe into a terminal."""
    console = Console(highlight=False)
    if console.file.isatty():
        return console
    return Console(highlight=False, width=UNWRAPPED)


def show_line(console: Console, text: str, style: str = "") -> None:
    """A sentence, wrapped between words on a terminal."""
    indent = text[: len(text) - len(text.lstrip())]
    lines = wrap(text, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    for line in lines if cell_len(text) > console.width else [text]:
        console.print(Text(line, style=style), soft_wrap=True)


def show_table(console: Console, table: Table) -> None:
    """Prints the title as a separate line, so that a narrow table does not break it."""
    if table.title:
        show_line(console, str(table.title), "italic")
        table.title = None
    if not _fit(table, console):
        _show_rows(console, table)
        return
    console.print(table, crop=False)


def _fit(table: Table, console: Console) -> bool:
    """Sets the widths of the columns; returns False if a word would have to be broken."""
    natural = [max(map(_width, _texts(column))) for column in table.columns]
    measured = console.measure(table, options=console.options.update(width=UNWRAPPED)).maximum
    room = console.width - (measured - sum(natural))
    if sum(natural) <= room:
        return True
    widths = [
        most if column.no_wrap else _longest_word(column) for column, most in zip(table.columns, natural, strict=True)
    ]
    left = room - sum(widths)
    if left < 0:
        return False
    for number in sorted(range(len(widths)), key=lambda n: natural[n] - widths[n]):  # smallest need first
        more = min(natural[number] - widths[number], left)
        widths[number] += more
        left -= more
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    return True


def _show_rows(console: Console, table: Table) -> None:
    headings = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        _show_row(console, headings, map(str, cells))
    if table.show_footer:
        _show_row(console, headings, [str(column.footer) for column in table.columns])


def _show_row(console: Console, headings: list[str], cells: Iterable[str]) -> None:
    for heading, cell in zip(headings, cells, strict=True):
        if cell:
            show_line(console, f"{heading}: {cell}" if heading else cell)
    console.print()


def _texts(column: Column) -> list[str]:
    return [str(column.header), *map(str, column.cells), str(column.footer)]


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _longest_word(column: Column) -> int:
    return max((cell_len(word) for text in _texts(column) for word in text.split()), default=0)
