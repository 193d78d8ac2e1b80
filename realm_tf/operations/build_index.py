"""`realm index`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts import array_files
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import EMBEDDINGS
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Index
from realm_tf.operations.operation import BeamOptions
from realm_tf.operations.operation import Operation
from realm_tf.retrieval.index import KINDS
from realm_tf.retrieval.index import index_class


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildIndex(Operation):
    """Builds a search index over block embeddings.

    Kinds: brute_force is exact; ivf scores only the best partitions; both run
    everywhere. scann is ScaNN's op, for CPU. For ivf and scann, the command
    measures recall@5 against exact search, with blocks as queries. Unknown
    options go to Beam, such as --runner.
    """

    command = "index"
    makes = Index

    embeddings: Embeddings
    """directory of `realm embed`"""
    output: str
    """the directory to make"""
    kind: Literal[tuple(KINDS)] = "scann"
    """kind of search"""
    reordering: Literal["float32", "int8"] = "float32"
    """scann: what the best candidates are scored with; int8 takes a third of
    the memory and costs some recall"""
    num_reordered: int = 200
    """scann, from 20,000 blocks on: candidates that are scored again"""
    num_parts: int | None = None
    """scann: number of searchers that share the blocks; building takes less memory
    with more of them (if not given: one for every 4 million blocks)"""
    num_partitions: int | None = None
    """ivf: number of partitions (if not given: 4 sqrt(number of blocks))"""
    num_probed: int | None = None
    """ivf: partitions searched; more raise the recall (if not given: 48)"""
    beam_options: BeamOptions = ()

    def parameters(self) -> dict:
        kind = index_class(self.kind)
        all_kinds = (index_class(name) for name in KINDS)
        others = {name for each in all_kinds for name in each.OPTIONS}
        self.refuse_given(others - {*kind.OPTIONS}, f"--kind {self.kind}")
        options = {name: getattr(self, name) for name in kind.OPTIONS}
        return {
            "kind": self.kind,
            **kind.resolve(self.embeddings.num_blocks, **options),
        }

    def parents(self) -> dict:
        return self.embeddings.parents

    def run(self) -> Index:
        """Builds the index.

        Returns:
            `Index`; its metadata hold the measured `recall@5` and the number
            of `recall_queries` (1.0 and 0 where the kind is exact).

        Raises:
            InputError: if the embeddings are damaged, `output` exists, or a
                number is wrong.
        """
        from realm_tf.beam_pipelines import build_index
        from realm_tf.beam_pipelines import engine

        parameters = self.parameters()
        options = engine.given_options(self.beam_options)
        self.embeddings.check_files()
        with self.write(by_workers=True) as stage:
            recall, num_queries = build_index.build(
                self.embeddings,
                stage.directory,
                parameters,
                options,
            )
            made = array_files.load_array(stage.path(EMBEDDINGS))
            stage.metadata.update(
                num_blocks=self.embeddings.num_blocks,
                embedding_dim=made.shape[1],
                fingerprint=fingerprints.fingerprint(
                    self.embeddings.fingerprint,
                    str(sorted(parameters.items())),
                ),
                recall_queries=num_queries,
                **{"recall@5": round(recall, 4)},
            )
        return self.result

    def report(self, result: Index) -> str:
        text = f"{self.output}: {self.kind} over {result.num_blocks:,} blocks"
        if result.metadata["recall_queries"]:
            text += (
                ", recall@5 against exact search "
                f"{result.metadata['recall@5']:.3f} "
                f"({result.metadata['recall_queries']} queries)"
            )
        return text
