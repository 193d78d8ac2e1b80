"""The card of a model directory: what it is and where it comes from."""

import dataclasses
import datetime
import re

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
    date = datetime.datetime.now(datetime.UTC).date()
    given = [f"- {k}: {v}" for k, v in sorted(parameters.items())]
    lines = [
        "---",
        f"license: {card.license}",
        "library_name: realm-tf",
        "tags: [realm, open-domain-question-answering]",
        f"date: {date}",
        "---",
        "",
        "# A REALM model",
        "",
        f"Origin: {card.origin}",
        "",
        *(f"- {note}" for note in card.notes),
        *([""] if card.notes else []),
        *_table("Read from", card.sources),
        "## Parts",
        "",
        *_parts(config),
        "",
        *_table("Files", sorted(digests.items())),
    ]
    if given:
        lines += ["## Made with", "", *given, ""]
    return "\n".join(lines)


def _table(title, rows):
    if not rows:
        return []
    return [
        f"## {title}",
        "",
        "| file | SHA-256 |",
        "|---|---|",
        *(f"| {path} | {digest} |" for path, digest in rows),
        "",
    ]


def _parts(config):
    towers = {"query and block tower": config["query_embedder"]}
    if not config["share_embedders"]:
        towers = {
            "query tower": config["query_embedder"],
            "block tower": config["block_embedder"],
        }
    for name, tower in towers.items():
        width = tower["projection_dim"] or tower["encoder"]["hidden_dim"]
        yield (
            f"- {name}: {_encoder(tower['encoder'])}, pooling "
            f"{tower['pooling']}, embeddings of {width}"
        )
    head = " and a masked-LM head" if config["masked_lm_head"] else ""
    reader = config["reader"]
    yield (
        f"- reader: {_encoder(reader['encoder'])}, spans of up to "
        f"{reader['max_span_width']} wordpieces{head}"
    )


def _encoder(config):
    return (
        f"BERT of {config['num_layers']} layers of width "
        f"{config['hidden_dim']}, {config['vocabulary_size']:,} wordpieces"
    )


def read_license(text: str) -> str | None:
    """What a card's header says, ours or one of the Hugging Face Hub."""
    found = _LICENSE.match(text)
    return found[1] if found else None
