"""Tables as text: aligned, and Markdown."""


def render(header: list[str], rows: list[list[str]]) -> str:
    """A table whose columns are as wide as their widest cells.

    Args:
        header: list of str.
        rows: list of lists of str, each as long as `header`.
    """
    rows = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * max(width, 3) for width in widths])
    return "".join(
        "| "
        + " | ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        )
        + " |\n"
        for row in rows
    )
