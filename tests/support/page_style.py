"""The colours of the web page."""

import re

from realm_tf.serving import rest_server


def schemes():
    """The colours of the light and of the dark scheme by name."""
    blocks = re.findall(
        r":root \{(.*?)\}",
        (rest_server.PAGE_DIRECTORY / "page.css").read_text(),
        re.S,
    )
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in blocks
    )
    assert set(light) == set(dark)
    return light, dark


def channels(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def rgb(colour):
    return f"rgb({', '.join(map(str, channels(colour)))})"
