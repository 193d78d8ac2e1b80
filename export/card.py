"""The card of a SavedModel: its content, for people and for servers."""

import datetime
import json
import os

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import list_files
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.version import __version__

FILE = "assets.extra/card.json"
README = "README.md"
# A TFRecord file of `PredictionLog`, as TF Serving reads it
# (tensorflow.org/tfx/serving/saved_model_warmup).
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
# Questions and titles that the web page shows, each.
NUM_EXAMPLES = 5
# Files of every directory, and those that are written here.
_NOT_LISTED = (artifact.JOB, artifact.MARKER, artifact.METADATA, FILE, README)


def write(directory: str, facts: dict) -> None:
    """Writes card.json, which servers read, and README.md.

    Args:
        directory: str. The version directory, with everything else in it.
        facts: dict. `num_blocks`, `index` (kind of search), `quantize`,
            `num_reader_blocks`, `precision`, `calibration` (dict) and
            `lexical_weight` (float) where there is one, `evidence_license`
            (str or `None`), `example_questions` (list of str that the model answers
            rightly), `example_titles` (list of str), `parents`
            (fingerprints), `parts` (name to bytes) and `model_card` (as in
            the model's metadata.json), `warnings` (list of str).
    """
    files = fingerprints.of_files(
        directory, sorted({*list_files(directory)} - {*_NOT_LISTED})
    )
    facts = {**facts, "files": files, "realm_version": __version__}
    write_text(
        os.path.join(directory, FILE),
        json.dumps(facts, ensure_ascii=False, indent=1),
    )
    write_text(os.path.join(directory, README), _render(facts))


def read(directory: str, *, check_files: bool = True) -> dict:
    """The card of a version directory; empty without one.

    Args:
        directory: str. The version directory.
        check_files: bool. Whether to compare files with their checksums.
            Defaults to `True`.

    Raises:
        InputError: if it cannot be read, or a file is not as it says.
    """
    path = os.path.join(directory, FILE)
    if not Path(path).exists():
        return {}
    try:
        facts = json.loads(Path(path).read_bytes())
        files = dict(facts["files"])
    except (ValueError, TypeError, LookupError) as error:
        raise InputError(
            f"{path} cannot be read ({error!r}): expected the card that "
            "`realm export` writes; export again."
        ) from error
    if check_files:
        fingerprints.check_files(
            directory, files, source=path, mend="Export or copy it again."
        )
    return facts


def spread(titles) -> list[str]:
    """A few distinct titles from the whole corpus."""
    step = max(1, len(titles) // NUM_EXAMPLES)
    chosen = (titles[i] for i in range(0, len(titles), step))
    return list(dict.fromkeys(filter(None, chosen)))[:NUM_EXAMPLES]


def _render(facts) -> str:
    from realm_tf.artifacts import html_page
    from realm_tf.artifacts import model_card

    page = html_page.render(
        "saved_model_card.md",
        **{
            "evidence_license": None,
            "calibration": None,
            "lexical_weight": None,
            **facts,
            "card": model_card.Card.from_json(facts["model_card"]),
            "date": datetime.datetime.now(datetime.UTC).date(),
        },
    )
    return page.rstrip() + "\n"
