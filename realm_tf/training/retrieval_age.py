"""How old the retrieval of a step is, where the host retrieves."""

import keras


class RetrievalAge(keras.callbacks.Callback):
    """Adds to the logs of each step how old its retrieval is.

    `retrieval_age`: steps from the swap whose query tower and embeddings the
    step's batch was searched with. The embeddings were computed before that
    swap; `index_age` of `training.index_refresh` counts from there.

    Args:
        retriever: `HostRetriever`, which gave the batches.
    """

    def __init__(self, retriever):
        super().__init__()
        self._retriever = retriever

    def on_train_begin(self, logs=None):
        self._retriever.steps_done = int(self.model.optimizer.iterations)

    # At the end, so that a swap before the next step finds it counted,
    # whatever the order of the callbacks.
    def on_train_batch_end(self, batch, logs=None):
        age = self._retriever.steps_done - self._retriever.pop_step()
        self._retriever.steps_done += 1
        if logs is not None:
            logs["retrieval_age"] = age
