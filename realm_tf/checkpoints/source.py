"""The parts of a model in a checkpoint, found by the names of its tensors."""

import dataclasses
import functools
import itertools
import pathlib
import re
import tomllib

import numpy as np

from realm_tf.artifacts import fingerprints
from realm_tf.checkpoints.assignment import POOLER
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.assignment import listed
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader
from realm_tf.text.tokenizer import Tokenizer

# Parts that a checkpoint can contain, and the class over the BERT of each.
BERT = "bert"
ENCODER = "encoder"
EMBEDDER = "embedder"
QUERY_EMBEDDER = "query_embedder"
READER = "reader"
_CLASSES = {
    BERT: lambda encoder: encoder,
    ENCODER: KnowledgeAugmentedEncoder,
    EMBEDDER: Embedder,
    QUERY_EMBEDDER: Embedder,
    READER: Reader,
}
# A vector of a head whose length is an argument of the class.
_HEAD_SIZES = {
    "projection/bias": "projection_dim",
    "span_scorer/layer_norm/beta": "span_hidden_dim",
}
# The embeddings of all blocks: no weight of a model.
_BLOCK_EMBEDDINGS = re.compile(r"(?:.*/)?block_emb")


@dataclasses.dataclass(frozen=True)
class Embedding:
    """How a tower makes an embedding of the outputs of its BERT.

    Args:
        pooling: str. See `Embedder`, as the next two.
        projection_dim: int or `None`.
        normalize: bool.
        query_prefix: str. Text before a question.
        block_prefix: str. Text before a block.
    """

    pooling: str = "cls"
    projection_dim: int | None = 128
    normalize: bool = False
    query_prefix: str = ""
    block_prefix: str = ""


@dataclasses.dataclass(frozen=True)
class BlockEmbeddings:
    """Published embeddings of all blocks, read in pieces.

    Args:
        tensors: `Tensors`.
        name: str. Of the tensor.
    """

    tensors: Tensors
    name: str

    def __len__(self):
        return self.tensors.shape(self.name)[0]

    def __getitem__(self, part: slice) -> np.ndarray:
        """float32 rows.

        Raises:
            InputError: if a row contains NaN or infinity.
        """
        start, limit, _ = part.indices(len(self))
        rows = np.asarray(self.tensors.read(self.name, start, limit), "float32")
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            raise InputError(
                f"{self.tensors.source}: row {start + int(finite.argmin())} "
                f"of {self.name} holds NaN or infinity."
            )
        return rows


@dataclasses.dataclass(frozen=True)
class Source:
    """An open checkpoint.

    Args:
        directory: str. Where it is, for files beside it.
        makers: dict. Each part, such as `BERT`, to the function without
            arguments that makes it with its weights.
        files: tuple of str. The files that contain the weights. Defaults to
            none.
        unread: tuple of str. Tensors that no part needs.
        block_embeddings: `BlockEmbeddings`. Defaults to `None`.
        name: str. The user's name of it. Defaults to `directory`.
        embedding: `Embedding`. Of a BERT that was trained to embed. Defaults to
            `None`.
        tokenizer: `Tokenizer`. Defaults to `None`: of files in the directory.
    """

    directory: str
    makers: dict
    files: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    block_embeddings: BlockEmbeddings | None = None
    name: str | None = None
    embedding: Embedding | None = None
    tokenizer: Tokenizer | None = None

    def __str__(self):
        return self.name or self.directory

    def checksums(self) -> tuple[tuple[str, str], ...]:
        """Each file of weights with its SHA-256."""
        return tuple(
            (
                path.replace(self.directory, str(self), 1),
                fingerprints.sha256(path),
            )
            for path in self.files
        )


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the checkpoints of a library have one part.

    Args:
        part: str. Such as `BERT`.
        scope: str. The beginning of the names of its BERT.
        head: dict. Our layer of its head to the library's name. The part is
            present if the first of these layers is.
        arguments: dict. Of the class of the part.
    """

    part: str
    scope: str
    head: dict = dataclasses.field(default_factory=dict)
    arguments: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Names:
    """The names that a library gives to the weights of our models.

    Args:
        layouts: tuple of `Layout`. Of two with the same scope, the first that
            is present counts.
        bert: dict. Our layer of a BERT to the library's name, below the scope.
            In both, `{i}` is the number of a Transformer layer.
        endings: dict. What the library appends to the name of a layer for our
            `embeddings`, `kernel`, `bias`, `gamma` and `beta`.
        transposed: bool. Whether its kernels are our transposed ones.
        unread: str. A regular expression of tensors that no part needs.
    """

    layouts: tuple[Layout, ...]
    bert: dict
    endings: dict
    transposed: bool = False
    unread: str = "(?!)"

    @classmethod
    def of(cls, library: str) -> "Names":
        """The names of names.toml of `"tf1"`, `"hugging_face"`, ..."""
        text = pathlib.Path(__file__).with_name("names.toml").read_text("utf-8")
        table = tomllib.loads(text)[library]
        layouts = tuple(Layout(**each) for each in table.pop("layouts"))
        return cls(layouts, **table)

    def mapping(self, layout: Layout, num_layers: int, *, pooler=True) -> dict:
        """The mapping of a part, for `assign`.

        Args:
            layout: `Layout`.
            num_layers: int. Transformer layers.
            pooler: bool. Whether there is a dense layer above [CLS]. Defaults
                to `True`.
        """
        bert = {ours: layout.scope + name for ours, name in self.bert.items()}
        if not pooler:
            del bert[POOLER]
        return self._expand(bert | layout.head, num_layers)

    def _expand(self, layers, num_layers):
        """The mapping of the variables of some layers."""
        mapping = {}
        for ours, theirs in layers.items():
            if ours.endswith("output_bias"):
                mapping[theirs] = (ours, False)
                continue
            variables = ("kernel", "bias")
            if ours.endswith("_embedding"):
                variables = ("embeddings",)
            elif ours.endswith("_norm"):
                variables = ("gamma", "beta")
            for i in range(num_layers if "{i}" in ours else 1):
                for variable in variables:
                    name = theirs.format(i=i) + self.endings[variable]
                    mapping[name] = (
                        f"{ours.format(i=i)}/{variable}",
                        self.transposed and variable == "kernel",
                    )
        return mapping

    def find(self, tensors: Tensors, make, num_layers: int | None = None):
        """The parts of a checkpoint.

        Args:
            tensors: `Tensors`.
            make: function that makes a part of its `Layout`, mapping and
                `Tensors`.
            num_layers: int. Transformer layers. Defaults to `None`: as many as
                there are.

        Returns:
            `Source` without a directory.

        Raises:
            InputError: if a part is there twice, or a tensor is unknown.
        """
        names = set(tensors.names())
        found = {}
        for layout in self.layouts:
            if self._marks(layout) <= names:
                found.setdefault(layout.scope, layout)
        # A BERT with a masked-LM head is a BERT, too.
        found |= {
            (scope, BERT): Layout(BERT, scope)
            for scope, layout in found.items()
            if layout.part == ENCODER
        }
        makers, known = {}, set(filter(_BLOCK_EMBEDDINGS.fullmatch, names))
        rows = [BlockEmbeddings(tensors, name) for name in known]
        for layout in found.values():
            mapping = self.mapping(
                layout,
                num_layers or self._count_layers(layout, names),
                # A tower of REALM reads it; others may have none.
                pooler=layout.part in (EMBEDDER, QUERY_EMBEDDER)
                or layout.scope + self.bert[POOLER] + self.endings["kernel"]
                in names,
            )
            known |= mapping.keys()
            maker = functools.partial(make, layout, mapping, tensors)
            add_maker(makers, layout.part, maker, tensors.source)
        unread = [n for n in names - known if re.fullmatch(self.unread, n)]
        unknown = names - known - set(unread)
        if unknown:
            raise InputError(
                f"{tensors.source} has tensors that no part of the model "
                f"takes: {listed(unknown)}."
            )
        rows = rows[0] if rows else None
        return Source("", makers, tensors.files, tuple(unread), rows)

    def _marks(self, layout):
        paths = {f"{ours}/kernel" for ours in [*layout.head][:1]}
        paths.add("token_embedding/embeddings")
        mapping = self.mapping(layout, 0)
        return {name for name, (path, _) in mapping.items() if path in paths}

    def _count_layers(self, layout, names):
        layer = "transformer_layer_{i}/feedforward_layer_norm"
        name = layout.scope + self.bert[layer] + self.endings["beta"]
        numbers = itertools.count(1)
        return next(i for i in numbers if name.format(i=i) not in names)


def make_part(
    layout: Layout, mapping: dict, tensors: Tensors, config: dict, **arguments
):
    """A part of a checkpoint with its weights.

    Args:
        layout: `Layout`.
        mapping: dict. See `assign`.
        tensors: `Tensors`.
        config: dict. Arguments of `BertEncoder`.
        **arguments: more of the class of the part.

    Raises:
        InputError: see `assign`.
    """
    arguments |= layout.arguments | {
        _HEAD_SIZES[path]: tensors.shape(name)[0]
        for name, (path, _) in mapping.items()
        if path in _HEAD_SIZES
    }
    encoder = BertEncoder(**config)
    model = _CLASSES[layout.part](encoder, **arguments)
    assign(model, mapping, tensors)
    return model


def bert_sizes(mapping: dict, tensors: Tensors) -> dict:
    """Arguments of `BertEncoder` that the shapes of tensors give.

    Args:
        mapping: dict. See `assign`.
        tensors: `Tensors`.

    Raises:
        InputError: if a tensor is missing.
    """
    names = {path: name for name, (path, _) in mapping.items()}

    def length(path):
        return tensors.shape(names[path])[0]

    layer = "transformer_layer_0/feedforward"
    return {
        "vocabulary_size": length("token_embedding/embeddings"),
        "num_layers": sum("feedforward_layer_norm/beta" in p for p in names),
        "hidden_dim": length(f"{layer}_layer_norm/beta"),
        "intermediate_dim": length(f"{layer}_intermediate_dense/bias"),
        "max_sequence_length": length("position_embedding/embeddings"),
    }


def add_maker(makers: dict, part: str, make, source: str):
    """Adds to `Source.makers`.

    Raises:
        InputError: if the part is there already.
    """
    if part in makers:
        raise InputError(
            f"{source} holds a second {part}: give one --source a part."
        )
    makers[part] = make
