"""Operations of a benchmark. Each keeps its output; a later run uses it."""

import gzip
import json

import realm_tf as realm


def read_rows(path) -> list[dict]:
    """The rows of a file of compressed JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Runs:
    """A graph of operations whose outputs are in one directory.

    Args:
        output: str or path. The directory.

    Attributes:
        graph: `realm.Graph`.
        output: str.
    """

    def __init__(self, output):
        self.graph, self.output = realm.Graph(), str(output)

    def add(self, operation, name: str, **fields):
        """Adds an operation with output `name`; returns the object there."""
        output = f"{self.output}/{name}"
        return self.graph.add(operation(output=output, **fields))

    def index(self, model, blocks, name: str = "index"):
        """Adds the embeddings and an exact index of blocks; returns it."""
        rows = self.add(realm.Embed, f"{name}-rows", model=model, blocks=blocks)
        return self.add(
            realm.BuildIndex, name, embeddings=rows, kind="brute_force"
        )
