"""Says what a directory of realm's holds: kind, counts, what it came from.

realm inspect DIR
realm inspect DIR --block 17           one block of a blocks directory
realm inspect DIR --html spans.html    a page with the salient spans marked
realm inspect DIR ... --plot runs.png  curves of pre-training or fine-tuning
                                       runs, finished or still going (or of
                                       their log files)
"""

import json
import os

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.errors import InputError
from realm_tf.tagging import page


def add_arguments(parser):
    """Arguments of `realm inspect`."""
    parser.add_argument(
        "directories",
        nargs="+",
        metavar="DIR",
        help="what a command of realm wrote; several only with --plot",
    )
    parser.add_argument("--block", type=int, help="print this block, too")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page of annotated passages with their spans marked",
    )
    parser.add_argument(
        "--num-passages",
        type=int,
        default=200,
        metavar="N",
        help="with --html: passages to show, spread evenly (default: 200)",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the curves of the directories' training runs into a PNG, "
        "instead of printing what they hold",
    )


def run(args, extra):
    """`realm inspect`."""
    if args.plot is not None:
        if args.block is not None or args.html is not None:
            raise InputError("--plot goes with neither --block nor --html.")
        plot_runs(args.directories, args.plot)
        print(args.plot)
        return
    if len(args.directories) > 1:
        raise InputError(
            f"Several directories go with --plot alone. Received: "
            f"{' '.join(args.directories)}"
        )
    (directory,) = args.directories
    metadata = inspect(directory)
    print(json.dumps(metadata, indent=2, ensure_ascii=False))
    if args.block is not None:
        block = read_block(directory, args.block)
        print(f"\n{block.title}  {block.url}\n{block.text}")
    if args.html is not None:
        page.write_page(directory, args.html, num_passages=args.num_passages)
        print(f"\n{args.html}: open it in a browser")


def inspect(directory: str) -> dict:
    """The metadata of a complete directory of any kind.

    Args:
        directory: str.

    Returns:
        dict, the content of metadata.json.

    Raises:
        InputError: if no command finished writing it.
    """
    if not artifact.is_complete(directory):
        raise InputError(
            f"{directory} is not a complete directory of realm's: it has no "
            f"{artifact.MARKER}."
        )
    return artifact.read_metadata(directory)


def read_block(blocks: str, block_id: int) -> schema.Block:
    """One block of a blocks directory."""
    num_blocks = artifact.read(blocks, kind=schema.BLOCKS)["num_blocks"]
    if not 0 <= block_id < num_blocks:
        raise InputError(
            f"{blocks} holds the blocks 0 to {num_blocks - 1}. Received: "
            f"--block {block_id}"
        )
    return next(schema.read_blocks(blocks, start=block_id, limit=block_id + 1))


def plot_runs(directories: list[str], path: str) -> None:
    """Draws the curves of training runs of one kind, so that they compare.

    Args:
        directories: list of str. What `realm pretrain` or `realm finetune`
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
