"""Batches as a function of (seed, epoch, step), for `model.fit`."""

import abc
from collections.abc import Iterator

import numpy as np

from realm_tf.errors import InputError


class ExampleBatches(abc.ABC):
    """Examples of a corpus in batches, each once an epoch.

    Each epoch visits its examples once, in an order of its own, and draws
    each again. Both follow from the seed: an example from (seed, epoch, its
    number in the corpus), its place from (seed, epoch). So a batch is a
    function of (epoch, step) alone: it is the same whoever makes it, and
    training resumes anywhere at no cost.

    A subclass calls `_set_num_examples` and defines `example`, `_order` and
    `_stack`.

    Args:
        batch_size: int. Examples of a batch.
        seed: int. Not negative. Defaults to `0`.
        drop_remainder: bool. Leave the last examples of an epoch's order out
            if they do not fill a batch. Defaults to `True`.

    Attributes:
        num_examples: int. Of each epoch.
        steps_per_epoch: int.

    Raises:
        InputError: if the examples do not fill one batch.
        ValueError: if an argument is out of its range.

    Example:

    ```python
    epoch, step = divmod(steps_done, examples.steps_per_epoch)
    model.fit(
        # Keras wants tuples of a generator.
        ((batch,) for batch in examples.batches(epoch, step)),
        steps_per_epoch=examples.steps_per_epoch,
        shuffle=False,  # They come shuffled.
    )
    ```
    """

    def __init__(
        self, *, batch_size: int, seed: int = 0, drop_remainder: bool = True
    ):
        if batch_size < 1 or seed < 0:
            raise ValueError(
                "`batch_size` must be at least 1 and `seed` not negative. "
                f"Received: batch_size={batch_size}, seed={seed}"
            )
        self.batch_size = batch_size
        self._seed = seed
        self._drop_remainder = drop_remainder
        self._known_order = (None, None)

    def _set_num_examples(self, num_examples, *, found, mend):
        """`found` says in an error how many there are, `mend` what to do."""
        self.num_examples = num_examples
        full, rest = divmod(num_examples, self.batch_size)
        self.steps_per_epoch = full + bool(rest and not self._drop_remainder)
        if not self.steps_per_epoch:
            raise InputError(
                f"{found}: fewer than one batch of {self.batch_size}. {mend} "
                "or choose a smaller batch."
            )

    @abc.abstractmethod
    def example(self, epoch: int, number: int):
        """What an epoch makes of an entry of the corpus.

        Args:
            epoch: int.
            number: int. Of the entry in the corpus.
        """

    @abc.abstractmethod
    def _order(self, generator):
        """The numbers of an epoch's examples, in their order."""

    @abc.abstractmethod
    def _stack(self, examples, size):
        """A dict of arrays from at most `size` examples."""

    def batches(self, epoch: int = 0, step: int = 0) -> Iterator[dict]:
        """Batches from (epoch, step) on, epoch after epoch, without end.

        Args:
            epoch: int. Defaults to `0`.
            step: int. Of that epoch. Defaults to `0`.
        """
        while True:
            for number in range(step, self.steps_per_epoch):
                yield self.batch(epoch, number)
            epoch, step = epoch + 1, 0

    def batch(self, epoch: int, step: int) -> dict:
        """One batch.

        Args:
            epoch: int.
            step: int. Below `steps_per_epoch`.

        Returns:
            dict of int32 arrays; see the class.

        Raises:
            ValueError: if an argument is out of its range.
        """
        return self._stack(self.examples(epoch, step), self.batch_size)

    def examples(self, epoch: int, step: int) -> list:
        """The examples of a batch."""
        return [
            self.example(epoch, number) for number in self._numbers(epoch, step)
        ]

    def _generator(self, epoch, number):
        # The 1 keeps these apart from the generator of the order: seeds are
        # padded with 0.
        return np.random.default_rng([self._seed, epoch, 1, int(number)])

    def _numbers(self, epoch, step):
        if epoch < 0 or not 0 <= step < self.steps_per_epoch:
            raise ValueError(
                "`epoch` must not be negative, `step` must be below "
                f"{self.steps_per_epoch}. Received: epoch={epoch}, step={step}"
            )
        known, order = self._known_order
        if known != epoch:
            order = self._order(np.random.default_rng([self._seed, epoch]))
            self._known_order = (epoch, order)
        return order[step * self.batch_size : (step + 1) * self.batch_size]
