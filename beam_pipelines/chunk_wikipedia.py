"""The pipeline of `realm chunk`: articles -> parts -> numbered shards."""

import dataclasses
import json
import os

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict
from apache_beam.pvalue import AsList

from realm_tf.articles import pages
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import shards
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import transforms
from realm_tf.beam_pipelines.execution import num_local_workers
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.text.blocks import Packing
from realm_tf.text.tokenizer import Tokenizer

# About 15 MB a shard at 288 wordpieces (our choice): shards are also what
# workers share.
BLOCKS_PER_SHARD = 10_000

_PARTS = "parts-"


@dataclasses.dataclass(frozen=True)
class Chunking:
    """The shards of a blocks directory, and how they are made.

    Args:
        stage: `Stage`. Removed again if the input holds a mistake, so that
            nobody goes on with it.
        inputs: list of `Source`. See `sources.find`.
        tokenizer: `Tokenizer`.
        packing: `Packing`.
        base_url: str or None. What comes before the title in a page's URL.
        keep_all_titles: bool. Keep lists and disambiguations.
        keep_tables: bool. See `readers.article_text`.
        num_shards: int or None. Files to write, at most one a block. `None`:
            one per `BLOCKS_PER_SHARD` blocks.
    """

    stage: Stage
    inputs: list[sources.Source]
    tokenizer: Tokenizer
    packing: Packing
    base_url: str | None
    keep_all_titles: bool
    keep_tables: bool
    num_shards: int | None

    def write(self, options: PipelineOptions) -> dict:
        """Writes what no interrupted run has written.

        Args:
            options: `PipelineOptions`.

        Returns:
            dict, what the metadata say of the blocks; see `shards.metadata`.

        Raises:
            InputError: if a worker found a mistake, or there is no block.
        """
        with resumable.nothing_left_of_a_mistake(self.stage):
            directory = self._prepare()
            counts_path = os.path.join(directory, "counts.json")
            workers = num_local_workers(options)
            elements = sources.make_sources(self.inputs, workers)
            run_pipeline(
                lambda pipeline: self._build(
                    pipeline, elements, directory, counts_path
                ),
                options,
                directory,
            )
            written = sorted(
                Path(self.stage.directory).glob(f"{shards.PREFIX}-*")
            )
            metadata = shards.metadata(
                resumable.merge_summaries(map(str, written)),
                json.loads(Path(counts_path).read_text()),
                self.packing,
            )
            remove(directory)
        return metadata

    def _prepare(self):
        """The directory of the parts, with those of an interrupted run.

        Its name says what they are made of. So no worker of a run that was
        killed can add a part to those of a run with other options or inputs,
        or of another version of the files.
        """
        stage = self.stage
        states = [pages.file_state(source.path) for source in self.inputs]
        made_of = json.dumps([stage.parameters, states])
        name = f"{_PARTS}{fingerprints.fingerprint(made_of)}"
        directory = stage.path(name)
        there = sorted(each.name for each in Path(stage.directory).iterdir())
        if name not in there:
            # A new run, or the inputs have changed since.
            for other in there:
                if other.startswith((_PARTS, f"{shards.PREFIX}-")):
                    remove(stage.path(other))
            Path(directory).mkdir(parents=True, exist_ok=True)
        return directory

    def _build(self, pipeline, elements, directory, counts_path):
        chunk_pages = transforms.ChunkPages(
            directory=directory,
            tokenizer=self.tokenizer,
            packing=self.packing,
            base_url=self.base_url,
            keep_all_titles=self.keep_all_titles,
            keep_tables=self.keep_tables,
        )
        keep_first = transforms.KeepFirst(
            directory=directory, paths=[source.path for source in self.inputs]
        )
        write = shards.WriteBlocks(
            directory=directory,
            packing=self.packing,
            unknown_id=self.tokenizer.unk_id,
        )
        chunked = (
            pipeline
            | "Files" >> beam.Create(elements)
            | "Share files" >> beam.Reshuffle()
            | "Chunk pages"
            >> beam.ParDo(chunk_pages).with_outputs("counts", main="pages")
        )
        found = (
            chunked.pages
            | "Group by id" >> beam.GroupByKey()
            | "Keep first"
            >> beam.ParDo(keep_first).with_outputs(
                "counts", "dropped", main="kept"
            )
        )
        counts = (
            (chunked.counts, found.counts)
            | "All counts" >> beam.Flatten()
            | "Count pages" >> beam.CombinePerKey(sum)
            | "Join counts" >> beam.combiners.ToDict()
            | "Write counts" >> beam.Map(_write_json, counts_path)
        )
        num_blocks = found.kept | "Count blocks" >> beam.CombinePerKey(sum)
        written = (
            pipeline
            | "Start" >> beam.Create([None])
            | "Plan shards"
            >> beam.FlatMap(
                shards.plan_shards,
                AsDict(num_blocks),
                AsList(found.dropped),
                output=self.stage.directory,
                directory=directory,
                num_shards=self.num_shards,
                blocks_per_shard=BLOCKS_PER_SHARD,
            )
            | "Share shards" >> beam.Reshuffle()
            | "Write blocks" >> beam.ParDo(write)
        )
        return counts, written


def _write_json(value, path):
    write_text(path, json.dumps(value))
