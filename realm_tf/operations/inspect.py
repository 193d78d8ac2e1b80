"""`realm inspect`."""

import dataclasses
import json
import os

import tyro

from realm_tf.artifacts import artifact
from realm_tf.artifacts import objects
from realm_tf.artifacts import saved_models
from realm_tf.artifacts.directory import Artifact
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.schema import Block
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspect(Operation):
    """Says what a directory of realm's holds: kind, counts, what it came from.

    realm inspect DIR
    realm inspect DIR --block 17           one block of a blocks directory
    realm inspect DIR --html spans.html    a page with the salient spans
                                           marked
    realm inspect DIR ... --plot runs.png  curves of pre-training or
                                           fine-tuning runs, finished or
                                           still going (or of their log
                                           files)
    """

    command = "inspect"

    directories: tyro.conf.Positional[tuple[str, ...]]
    """what a command of realm wrote; several only with --plot"""
    block: int | None = None
    """print this block, too"""
    html: str | None = None
    """write a page of 200 annotated passages with their spans marked"""
    plot: str | None = None
    """draw the curves of the directories' training runs into a PNG, instead of
    printing what they hold"""

    def run(self) -> Artifact | None:
        """Opens the directory; writes what is asked for.

        Returns:
            The object of the directory's class; `None` with `plot`.

        Raises:
            InputError: if no command finished writing it, or the arguments do
                not go together.
        """
        if self.plot is not None:
            if self.block is not None or self.html is not None:
                raise InputError("--plot goes with neither --block nor --html.")
            plot_runs(self.directories, self.plot)
            return None
        if len(self.directories) != 1:
            raise InputError(
                "Expected one directory (several with --plot). Received: "
                f"{' '.join(self.directories) or 'none'}"
            )
        (directory,) = self.directories
        if LiveCorpus(directory).exists:
            raise InputError(
                f"{directory} is a corpus: `realm corpus status {directory}` "
                "shows what it holds."
            )
        found = objects.open_any(_version_of(directory))
        if self.html is not None:
            from realm_tf.tagging import page

            page.write_page(found.path, self.html)
        return found

    def report(self, result: Artifact | None) -> str:
        if result is None:
            return self.plot
        metadata = json.dumps(result.metadata, indent=2, ensure_ascii=False)
        lines = [repr(result), metadata]
        if self.block is not None:
            block = read_block(result, self.block)
            lines.append(f"\n{block.title}  {block.url}\n{block.text}")
        if self.html is not None:
            lines.append(f"\n{self.html}: open it in a browser")
        return "\n".join(lines)


def _version_of(directory):
    """Of an export's base directory, the version that is served."""
    if artifact.is_complete(directory):
        return directory
    if saved_models.version_directories(directory):
        return saved_models.find_version(directory)[0]
    return directory


def read_block(blocks: Artifact, block_id: int) -> Block:
    """One block of a blocks directory.

    Raises:
        InputError: if the directory holds something else or no such block.
    """
    blocks = Blocks(blocks.path)
    check_block(blocks, block_id, flag="--block")
    return next(blocks.read(block_id, block_id + 1))


def check_block(blocks: Blocks, block_id: int, *, flag: str) -> None:
    """Refuses the number of no block, given by a flag."""
    if not 0 <= block_id < blocks.num_blocks:
        raise InputError(
            f"{blocks} holds the blocks 0 to {blocks.num_blocks - 1}. "
            f"Received: {flag} {block_id}"
        )


def plot_runs(directories: tuple[str, ...], path: str) -> None:
    """Draws the curves of training runs beside each other.

    Args:
        directories: tuple of str. What `realm pretrain` or `realm finetune`
            wrote or is writing.
        path: str. The PNG to write.

    Raises:
        InputError: if a directory holds no log, or the file cannot be
            written.
    """
    from realm_tf.training import plots
    from realm_tf.training import training_log

    names = [os.path.basename(each.rstrip("/")) for each in directories]
    if len(set(names)) < len(names):
        names = directories
    logs = {
        name: training_log.read_log(each)
        for name, each in zip(names, directories, strict=True)
    }
    plots.plot_training(logs, path)
