"""The card of a model directory: what it is and where it comes from."""

import dataclasses
import datetime

import yaml

from realm_tf.artifacts import html_page

UNKNOWN_LICENSE = "unknown"


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
        languages: tuple of str. ISO 639 codes of the languages that the model
            knows; none if that is not known.
    """

    origin: str = "Not recorded."
    license: str = UNKNOWN_LICENSE
    sources: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()

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
            tuple(found["languages"]),
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


def read_header(text: str) -> dict:
    """What a card's header says, ours or one of the Hugging Face Hub.

    Args:
        text: str. The card, Markdown.

    Returns:
        dict with `license` and `languages` as of `Card`, what is said of them.
    """
    import huggingface_hub

    try:
        card = huggingface_hub.ModelCard(text, ignore_metadata_errors=True)
    except (ValueError, yaml.YAMLError):
        return {}
    said = {}
    if isinstance(card.data.license, str):
        said["license"] = card.data.license
    languages = card.data.language or []
    if isinstance(languages, str):
        languages = [languages]
    if languages:
        # YAML takes Norwegian's code for a "no".
        said["languages"] = tuple(
            "no" if code is False else str(code) for code in languages
        )
    return said
