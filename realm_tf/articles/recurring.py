"""What recurs around the text of most pages of a site, and is no text."""

import collections

from realm_tf.articles import documents

# Our choice: what recurs on fewer pages, or on a smaller share of them, is no
# sign, more of the text is no menu, and a title or a date may stand between what
# recurs.
_LEAST_PAGES = 5
_LEAST_SHARE = 0.75
_MOST_RECURRING = 0.8
_MOST_BETWEEN = 3


def drop(rows: dict[str, dict]) -> int:
    """Drops what stands around the text on most HTML pages, such as menus
    without a role and notices, from all but the first of them: whatever it says
    can still be found.

    Args:
        rows: dict of id to a row with `file` and `text`, whose lines are
            paragraphs; changed in place.

    Returns:
        int. The number of sections that are left empty, and so removed.
    """
    files = collections.defaultdict(list)
    for name, row in rows.items():
        if documents.HTML.is_named(row["file"]):
            files[row["file"]] += [(name, x) for x in row["text"].split("\n")]
    lines = {file: [line for _, line in each] for file, each in files.items()}
    num_files = collections.Counter(
        line for each in lines.values() for line in set(each)
    )
    least = _LEAST_SHARE * len(files)
    common = {line for line, num in num_files.items() if num > least}
    at_edges = {
        file: _edge(each, range(len(each)), common)
        | _edge(each, range(len(each) - 1, -1, -1), common)
        for file, each in lines.items()
    }
    length = sum(len(line) for each in lines.values() for line in each)
    dropped = sum(
        len(lines[f][n]) for f, each in at_edges.items() for n in each
    )
    # Versions of one page have their text in common.
    if len(files) < _LEAST_PAGES or dropped > _MOST_RECURRING * length:
        return 0
    first, num_before = {}, len(rows)
    for file, each in files.items():
        kept = {name: [] for name, _ in each}
        for number, (name, line) in enumerate(each):
            is_edge = number in at_edges[file]
            if not is_edge or first.setdefault(line, file) == file:
                kept[name].append(line)
        for name, left in kept.items():
            rows[name]["text"] = "\n".join(left)
            if not left:
                del rows[name]
    return num_before - len(rows)


def _edge(lines, numbers, common):
    """Numbers of common lines before the text, with few others between."""
    found, num_others = set(), 0
    for number in numbers:
        if lines[number] in common:
            found.add(number)
        elif (num_others := num_others + 1) > _MOST_BETWEEN:
            break
    return found
