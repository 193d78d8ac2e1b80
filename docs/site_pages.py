"""Pages of the site that are generated: from other files and from the code.

MkDocs calls these functions (mkdocs.yml, `hooks`). README.md, CONTRIBUTING.md
and CHANGELOG.md are pages too. The reference of the commands lists the fields
of the operations, and the reference of the API lists the public names.
"""

import dataclasses
import inspect
import pathlib
import posixpath
import re
import types
import typing

import docstring_parser
import site_docstrings
from mkdocs.structure.files import File

import realm_tf
from realm_tf import cli
from realm_tf.artifacts.directory import Named
from realm_tf.operations.operation import parts_of

ROOT = pathlib.Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
# Its text may be an image.
_LINK = re.compile(
    r"(!?)\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]"
    r"\((?!https?:|#)([^)#]+)(#[^)]*)?\)"
)


def on_files(files, config):
    """Adds the pages that are not in docs/."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        content = _links(text, folder=".", page=page)
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Fills the references, and replaces links to files that are no pages."""
    source = page.file.src_uri
    if source in PAGES.values():
        return markdown
    if source == "reference/commands.md":
        markdown += "".join(map(_command, cli.COMMANDS))
    if source == "reference/api.md":
        markdown += "".join(
            f"\n::: realm_tf.{module}.{name}\n"
            f"    options:\n      heading: realm.{name}\n"
            for name, module in realm_tf.MODULES.items()
        )
    folder = posixpath.dirname(f"docs/{source}")
    return _links(markdown, folder=folder, page=source)


def _links(markdown, *, folder, page):
    """Links of a file in `folder` of the repository, as `page` has them."""

    def link(match):
        mark, text, target, anchor = match.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        inside = PAGES.get(path) or path.removeprefix("docs/")
        if inside != path:
            place = posixpath.relpath(inside, posixpath.dirname(page) or ".")
            return f"{mark}[{text}]({place}{anchor})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return _LINK.sub(link, markdown)


def _command(name):
    """The section of one command: its docstring, options and settings."""
    kind = cli.operation_class(name)
    hints = typing.get_type_hints(kind, include_extras=True)
    helps = _helps(*reversed(kind.__mro__))
    rows = [
        [
            _flag(field.name, hint),
            _type(hint),
            _default(field),
            helps.get(field.name, ""),
        ]
        for field in dataclasses.fields(kind)
        if (hint := hints[field.name]) and field.name != "beam_options"
    ]
    if "beam_options" in hints:
        rows.append(["`--...`", "", "", "other options go to Apache Beam"])
    text = site_docstrings.as_markdown(inspect.getdoc(kind))
    return (
        f"\n## {name}\n\n{text}\n\n"
        + _table(["option", "type", "default", "meaning"], rows)
        + "".join(map(_settings, _of_one_type(_recipes(kind))))
    )


def _helps(*classes):
    """Name to meaning of fields, from the docstrings of dataclasses."""
    return {
        each.arg_name: " ".join(each.description.split())
        for one in classes
        if dataclasses.is_dataclass(one)
        for each in docstring_parser.parse_from_object(one).params
        if each.description
    }


def _flag(name, hint):
    name = name.strip("_").replace("_", "-")
    for extra in getattr(hint, "__metadata__", ()):
        name = getattr(extra, "name", None) or name
        if repr(extra) == "Positional":
            return f"`{name.upper()}`"
    return f"`--{name}`"


def _type(hint):
    """Choices of a `Literal`, the metavar of a directory, or the type."""
    parts = list(parts_of(hint))
    found = []
    for part in parts:
        if typing.get_origin(part) is typing.Literal:
            found += [f"`{choice}`" for choice in typing.get_args(part)]
        elif isinstance(part, type) and part is not types.NoneType:
            is_named = issubclass(part, Named)
            found.append(part.metavar if is_named else part.__name__)
    several = any(typing.get_origin(part) is tuple for part in parts)
    return " ".join(found) + (" ..." if several else "")


def _default(field):
    if field.default is dataclasses.MISSING:
        return "required"
    return "" if field.default in (None, (), "") else f"`{field.default}`"


def _recipes(kind):
    """Name to recipe of the modules that an operation's module imports."""
    return {
        name: recipe
        for module in vars(inspect.getmodule(kind)).values()
        if inspect.ismodule(module)
        for name, recipe in getattr(module, "RECIPES", {}).items()
        if "recipe" in kind.__dataclass_fields__
    }


def _of_one_type(recipes):
    """Recipes by their type, without those of unit tests."""
    kinds = dict.fromkeys(type(each) for each in recipes.values())
    for kind in kinds:
        yield {
            name: each
            for name, each in recipes.items()
            if type(each) is kind and "tiny" not in name
        }


def _settings(recipes):
    """The table of what `--set` changes, with the values of each recipe."""
    first = next(iter(recipes.values()))
    groups = (
        type(value)
        for value in vars(first).values()
        if dataclasses.is_dataclass(value)
    )
    helps = _helps(
        *(base for group in groups for base in reversed(group.__mro__)),
        *reversed(type(first).__mro__),
    )
    rows = [
        [
            f"`{name}`",
            *(f"{each.flat()[name]}" for each in recipes.values()),
            helps.get(name, ""),
        ]
        for name in first.flat()
    ]
    columns = [f"`{name}`" for name in recipes]
    return "\n" + _table(["`--set`", *columns, "meaning"], rows)


def _table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n"
        for line in lines
    )
