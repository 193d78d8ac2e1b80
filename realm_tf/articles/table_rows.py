"""Rows of tables as lines of text, whatever markup a table came in."""

import dataclasses
import itertools
from collections.abc import Iterable

# Of attributes of a malformed table.
_MOST_SPANNED = 100


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell as its markup has it.

    Args:
        text: str. In one line.
        is_header: bool. Whether it says what others are about. Defaults to
            `False`.
        num_rows: int. In how many rows it stands. Defaults to `1`.
        num_columns: int. In how many columns. Defaults to `1`.
    """

    text: str
    is_header: bool = False
    num_rows: int = 1
    num_columns: int = 1


def span(value: str | None) -> int:
    """What the attribute `rowspan` or `colspan` says; 1 if it is no number."""
    value = (value or "").strip()
    # No more digits than matter: Python refuses to read thousands of them.
    return (
        min(max(1, int(value[:9])), _MOST_SPANNED) if value.isdecimal() else 1
    )


def lines_of(rows: Iterable[list[Cell]]) -> list[str]:
    """A line for each row of a table, with the headers of its columns.

    A cell that spans rows stands in each of them. One that spans columns
    stands in the first, and a header that does over all of them. Without
    headers above, a header beside one cell is its name. Headers over empty cells
    alone are the first line.

    Args:
        rows: iterable of lists of `Cell`. The first rows of headers alone are
            those of the columns.

    Example:

    >>> name, two = Cell("Stay", is_header=True), Cell("two nights")
    >>> lines_of([[name, two]]) + lines_of([[name], [two]])
    ['Stay: two nights.', 'Stay: two nights.']
    """
    headers, lines, empty = [], [], set()
    for texts, are_headers in _grid(rows):
        if all(are_headers) and not lines:
            # Headers of groups of columns stand above those of columns.
            headers = [
                " ".join(dict.fromkeys(filter(None, pair)))
                for pair in itertools.zip_longest(headers, texts)
            ]
            empty = set(range(len(headers)))
        elif not headers and are_headers == [True, False]:
            lines += table_lines(texts[:1], [texts[1:]])
        else:
            lines += table_lines(headers, [texts])
            empty -= {number for number, text in enumerate(texts) if text}
    return table_lines([], [[headers[n] for n in sorted(empty)]]) + lines


def _grid(rows):
    """Yields the texts of the columns of each row, and which are headers."""
    # Column: text, whether it is a header, and in how many rows it stands yet.
    spanning = {}
    for cells in rows:
        found = []
        for cell in cells:
            while len(found) in spanning:
                found.append(_next(spanning, len(found)))
            for number in range(cell.num_columns):
                shown = cell.text if cell.is_header or not number else ""
                if cell.num_rows > 1:
                    left = cell.num_rows - 1
                    spanning[len(found)] = shown, cell.is_header, left
                found.append((shown, cell.is_header))
        while len(found) in spanning:
            found.append(_next(spanning, len(found)))
        if found:
            texts, are_headers = zip(*found, strict=True)
            yield list(texts), list(are_headers)


def _next(spanning, column):
    text, is_header, left = spanning.pop(column)
    if left > 1:
        spanning[column] = text, is_header, left - 1
    return text, is_header


def table_lines(headers: list[str], rows: list[list[str]]) -> list[str]:
    """A line for each row of a table, with the header of each cell.

    Args:
        headers: list of str. Of the columns; may be empty.
        rows: list of lists of str. Empty cells say nothing.

    Example:

    >>> table_lines(["City", "Stay"], [["Oslo", "160 EUR"], ["Rome", ""]])
    ['City: Oslo; Stay: 160 EUR.', 'City: Rome.']
    """
    lines = []
    for row in rows:
        names = [*headers, *[""] * len(row)]
        cells = [
            f"{name}: {cell}" if name else cell
            for name, cell in zip(names, row, strict=False)
            if cell
        ]
        if cells:
            line = "; ".join(cells)
            lines.append(line if line.endswith((".", "!", "?")) else f"{line}.")
    return lines
