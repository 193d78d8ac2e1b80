"""The card of a model directory: what it is and where it comes from."""

import dataclasses
import datetime
import re

from realm_tf.artifacts import html_page

UNKNOWN_LICENSE = "unknown"
_LICENSE = re.compile(r"\A---\n(?:.*\n)*?license:\s*([\w.-]+)\s*\n")


@dataclasses.dataclass(frozen=True)
class Card:
    """What a model's weights come from; training hands it on.

    Args:
        origin: str. One sentence. Defaults to one that says nothing.
        license: str. An SPDX identifier in lower case, as the Hugging Face
            Hub's, or `"unknown"`.
        sources: tuple of (path, SHA-256). The files that the weights were
            read from.
        notes: tuple of str. What a user must know, a sentence each.
    """

    origin: str = "Not recorded."
    license: str = UNKNOWN_LICENSE
    sources: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict:
        """For metadata.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: dict):
        """What `to_json` gave, after JSON made lists of its tuples."""
        return cls(
            found["origin"],
            found["license"],
            tuple(map(tuple, found["sources"])),
            tuple(found["notes"]),
        )


def render(card: Card, config: dict, digests: dict, parameters: dict) -> str:
    """The card as Markdown, with the header that model hubs read.

    Args:
        card: `Card`.
        config: dict. The directory's config.json.
        digests: dict. Name of each file to its SHA-256.
        parameters: dict. What the command that wrote it was given.
    """
    page = html_page.render(
        "model_card.md",
        card=card,
        config=config,
        digests=digests,
        parameters=parameters,
        date=datetime.datetime.now(datetime.UTC).date(),
    )
    return page.rstrip() + "\n"


def read_license(text: str) -> str | None:
    """What a card's header says, ours or one of the Hugging Face Hub."""
    found = _LICENSE.match(text)
    return found[1] if found else None
