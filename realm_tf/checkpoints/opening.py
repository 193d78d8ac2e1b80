"""Opens checkpoints of all kinds, with the card beside them."""

from realm_tf.artifacts import model_card
from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import model_garden
from realm_tf.checkpoints import presets
from realm_tf.checkpoints import tf1
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.tokenizer_files import find


def open_source(kind: str, source: str, num_heads: int = 0) -> Source:
    """Opens a checkpoint.

    Args:
        kind: str. `"hf"`, `"tf1"`, `"garden"` or `"keras-hub"`.
        source: str. A local directory; of the first also the address of one,
            see `artifacts.hubs`, of the next two also the prefix of a
            checkpoint, of the last also the name of a preset.
        num_heads: int. Attention heads of `"tf1"`, whose files do not say it;
            see `tf1.open_source`.

    Returns:
        `Source`.

    Raises:
        InputError: if something is missing, damaged or of no known kind.
    """
    if kind == "hf":
        return hugging_face.open_source(source)
    if kind == "keras-hub":
        return presets.open_source(source)
    if kind == "tf1":
        return tf1.open_source(source, num_heads)
    return model_garden.open_source(source)


def find_header(directories) -> dict:
    """What the header of a README.md says: `license` and `languages`."""
    path = find(directories, "README.md")
    return model_card.read_header(Path(path).read_text()) if path else {}
