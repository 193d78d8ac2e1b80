"""Says what a directory of realm's holds: kind, counts, what it came from.

realm inspect DIR
realm inspect DIR --block 17           one block of a blocks directory
realm inspect DIR --html spans.html    a page with the salient spans marked
"""

import json

from realm_tf import stages
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.tagging import page


def add_arguments(parser):
    """Arguments of `realm inspect`."""
    parser.add_argument("directory", help="what a command of realm wrote")
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


def run(args, extra):
    """`realm inspect`."""
    metadata = inspect(args.directory)
    print(json.dumps(metadata, indent=2, ensure_ascii=False))
    if args.block is not None:
        block = read_block(args.directory, args.block)
        print(f"\n{block.title}  {block.url}\n{block.text}")
    if args.html is not None:
        page.write_page(
            args.directory, args.html, num_passages=args.num_passages
        )
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
    if not stages.is_complete(directory):
        raise InputError(
            f"{directory} is not a complete directory of realm's: it has no "
            f"{stages.MARKER}."
        )
    return stages.read_metadata(directory)


def read_block(blocks: str, block_id: int) -> schema.Block:
    """One block of a blocks directory."""
    num_blocks = stages.read(blocks, kind=schema.BLOCKS)["num_blocks"]
    if not 0 <= block_id < num_blocks:
        raise InputError(
            f"{blocks} holds the blocks 0 to {num_blocks - 1}. Received: "
            f"--block {block_id}"
        )
    return next(schema.read_blocks(blocks, start=block_id, limit=block_id + 1))
