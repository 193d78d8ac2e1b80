"""Operations of a benchmark. Each keeps its output; a later run uses it."""

import realm_tf as realm


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
