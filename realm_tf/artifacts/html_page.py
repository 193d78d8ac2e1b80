"""Pages for people: one file each, which needs nothing else.

The templates are in realm_tf/templates. Whatever those of HTML are given is
escaped unless it is `Markup`: blocks, answers and questions come from anywhere.
"""

import jinja2
from markupsafe import Markup

from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

# No page can hold these, escaped or not: control characters, halves of
# surrogate pairs.
_NO_CHARACTERS = {
    code: "\ufffd"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
    if chr(code) not in "\t\n\r"
}


def clean(value):
    """A value whose text a page can hold; one that is no text is kept."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.translate(_NO_CHARACTERS)
    return value


_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("realm_tf"),
    autoescape=jinja2.select_autoescape(["html"]),
    finalize=clean,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values) -> str:
    """A page, of a file of realm_tf/templates and what it shows."""
    return _TEMPLATES.get_template(template).render(**values)


def write(path: str, template: str, **values) -> None:
    """Writes a page.

    Args:
        path: str. The file to write; one that is there is replaced.
        template: str. A file of realm_tf/templates.
        **values: what the template shows.

    Raises:
        InputError: if the file cannot be written.
    """
    content = render(template, **values)
    try:
        write_text(path, content)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}. Choose "
            "another file."
        ) from error
