"""The directories and files that realm's commands hand to each other."""

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import hubs
from realm_tf.artifacts import schema
from realm_tf.artifacts.directory import Artifact
from realm_tf.artifacts.directory import recorded
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.texts import Texts
from realm_tf.errors import InputError

# Blocks parsed together (our choice).
_AT_ONCE = 4_096


class Blocks(Texts, Artifact):
    """Blocks of a corpus, as `realm chunk` wrote or `realm pack` packed them.

    Attributes:
        num_blocks: int. How many blocks there are.
        tokenizer: str. Fingerprint of the tokenizer that made the wordpieces.

    Example:
    >>> from realm_tf.artifacts.objects import Blocks
    >>> Blocks("not-there")
    Blocks('not-there', not made yet)
    """

    kinds = ("blocks", "packed_blocks")
    what = "blocks"
    record = schema.Block
    num_blocks = recorded("num_blocks")
    tokenizer = recorded("tokenizer")

    @property
    def fingerprint(self) -> str:
        """Digest of the blocks, the same before and after packing."""
        return self.parents["blocks"] if self.is_packed else super().fingerprint

    def read_columns(self, *names: str) -> Iterator[dict]:
        """Yields fields of all blocks, some thousand blocks at once.

        Where few fields are wanted, that takes a fraction of the time of
        `read`.

        Args:
            *names: str. Fields of `schema.Block`.

        Yields:
            dict, as `schema.columns`.

        Raises:
            InputError: as `read`.
        """
        for path, number, last, records in self.shards():
            wrong = self.wrong(path, number, last)
            while serialized := list(itertools.islice(records, _AT_ONCE)):
                found = schema.columns(
                    self.record, (*names, "block_id"), serialized
                )
                numbers = np.arange(number, number + len(serialized))
                number += len(serialized)
                if number > last or np.any(found["block_id"] != numbers):
                    raise wrong
                yield found
            if number != last:
                raise wrong

    @functools.cached_property
    def records(self):
        """`BlockRecords` of all blocks; opened once."""
        from realm_tf.artifacts.block_records import BlockRecords

        return BlockRecords(self)


class Passages(Texts, Artifact):
    """Passages with their salient spans, annotated or packed for training.

    Attributes:
        num_passages: int. How many passages there are.
    """

    kinds = ("annotated", "packed_passages")
    what = "passages"
    record = schema.AnnotatedPassage
    num_passages = recorded("num_passages")

    @property
    def blocks(self) -> str | None:
        """Fingerprint of the blocks that the passages are.

        `None` if they are of another corpus.
        """
        return self.parents.get("blocks")


class Embeddings(Artifact):
    """Embeddings of all blocks, in shards by block id.

    Attributes:
        num_blocks: int. How many rows there are.
    """

    kinds = ("embeddings",)
    num_blocks = recorded("num_blocks")

    @functools.cached_property
    def shards(self) -> list[tuple[str, int]]:
        """(path, first block id) of each file, in order of block id."""
        rows = self.parameters["rows_per_shard"]
        return [
            (self.file(name), number * rows)
            for number, name in enumerate(self.metadata["shards"])
        ]

    def read(self) -> np.ndarray:
        """All rows in memory, float32 `(num_blocks, embedding_dim)`."""
        from realm_tf.artifacts import index_files

        return np.concatenate(
            [index_files.load_array(path) for path, _ in self.shards]
        )

    def summary(self) -> str:
        return f"{self.num_blocks:,} embeddings"


class Index(Artifact):
    """A search index over block embeddings.

    Attributes:
        num_blocks: int. How many blocks can be found.
    """

    kinds = ("index",)
    num_blocks = recorded("num_blocks")

    @property
    def search(self) -> str:
        """The kind of search: one of `retrieval.index.KINDS`."""
        return self.parameters["kind"]

    @functools.cached_property
    def embeddings(self):
        """float32 array `(num_blocks, embedding_dim)`; memory-mapped."""
        from realm_tf.artifacts import index_files

        # First: a directory of another kind is said to be so.
        self.metadata  # noqa: B018
        return index_files.load_embeddings(self.path)

    def state(self, names) -> dict:
        """Name to array: what the kind keeps beside the embeddings."""
        from realm_tf.artifacts import index_files

        return {
            name: index_files.load_array(self.file(f"{self.search}-{name}.npy"))
            for name in names
        }

    def load(self, *, quantize: str = "none"):
        """The `retrieval.index.Index` of its kind; see `Index.from_files`."""
        from realm_tf.retrieval.index import index_class

        return index_class(self.search).from_files(self, quantize=quantize)

    def summary(self) -> str:
        return f"{self.search} index over {self.num_blocks:,} blocks"


class Model(Artifact):
    """A model directory: weights, config.json, vocab.txt, card.

    It may also be the address of one on the Hugging Face Hub, see
    `artifacts.hubs`, which is fetched when it is first read.

    Attributes:
        tokenizer: str. Fingerprint of its tokenizer.
        block_tower: str. Fingerprint of all that decides a block's embedding.
    """

    kinds = ("model",)
    tokenizer = recorded("tokenizer")
    block_tower = recorded("block_tower")

    @functools.cached_property
    def directory(self) -> str:
        return (
            hubs.fetch(self.path) if hubs.is_address(self.path) else self.path
        )

    @property
    def vocabulary(self) -> str:
        """The path of its vocab.txt."""
        return self.file("vocab.txt")

    @functools.cached_property
    def config(self) -> dict:
        """The content of config.json."""
        return self.read_json("config.json")

    def load(self, **arguments):
        """`LoadedModel` of its own, with the weights as they are saved.

        Args:
            **arguments: of `model_directory.load`.
        """
        from realm_tf.models import model_directory

        return model_directory.load(self, **arguments)

    def summary(self) -> str:
        encoder = self.config["query_embedder"]["encoder"]
        return (
            f"towers of {encoder['num_layers']} layers, "
            f"{encoder['hidden_dim']} wide"
        )


class Tagger(Artifact):
    """The BERT tagger of salient spans."""

    kinds = ("tagger",)

    @functools.cached_property
    def metrics(self) -> dict:
        """Name of each file to its scores, by type and over `"all"`."""
        return self.read_json("metrics.json")


class QuestionSet(Artifact):
    """Questions files of `realm questions`."""

    kinds = ("questions",)


class Evaluation(Artifact):
    """What `realm evaluate` measured: metrics, predictions, a report."""

    kinds = ("evaluation",)

    @functools.cached_property
    def metrics(self) -> dict:
        """Name to value; `NAME_interval` is the 95 % interval of NAME."""
        return self.read_json("metrics.json")

    @functools.cached_property
    def predictions(self) -> list[dict]:
        """The lines of predictions.jsonl."""
        from realm_tf.artifacts import question_files

        # First: a directory that is not complete is said to be so.
        self.metadata  # noqa: B018
        path = self.file("predictions.jsonl")
        return [each.line for each in question_files.read_questions(path)]

    def summary(self) -> str:
        found = [f"{self.metrics['questions']} questions"]
        for name in ("exact_match", "answer_recall@5"):
            if name in self.metrics:
                found.append(f"{name} {self.metrics[name]:.3f}")
        return ", ".join(found)


class Comparison(Artifact):
    """Evaluations of the same questions side by side, by `realm compare`."""

    kinds = ("comparison",)

    @functools.cached_property
    def content(self) -> dict:
        """What comparison.json holds; see `comparison.compare`."""
        return self.read_json("comparison.json")

    @property
    def markdown(self) -> str:
        """The tables: metrics by system, and differences from the first."""
        return Path(self.file("comparison.md")).read_text().rstrip()


class ForeignModel(Artifact):
    """A model in the files of another library."""

    kinds = ("foreign_model", "hugging_face")


class SavedModel(Artifact):
    """One version of an export: raw question in, answer with evidence out."""

    kinds = ("saved_model",)


class Verification(Artifact):
    """What `realm verify` found, where no check failed."""

    kinds = ("verification",)


def open_any(path: str) -> Artifact:
    """The directory as an object of the class that its metadata names.

    Args:
        path: str. A directory that a command of realm wrote.

    Raises:
        InputError: if no command finished writing it, or the kind is unknown.
    """
    kind = artifact.read(path)["kind"]
    for each in Artifact.__subclasses__():
        if kind in each.kinds:
            return each(path)
    raise InputError(
        f"{path} holds {kind!r}, which this version does not know."
    )
