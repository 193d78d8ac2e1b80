"""`realm inspect`."""

import dataclasses
import json
import os

import tyro

from realm_tf.artifacts import artifact
from realm_tf.artifacts import objects
from realm_tf.artifacts import saved_models
from realm_tf.artifacts.directory import Artifact
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspect(Operation):
    """Prints what a directory holds: kind, counts, what it was made from.

      realm inspect DIR
      realm inspect DIR --html spans.html
      realm inspect DIR ... --plot runs.png

    A training that --plot draws may still be running. Its log file works, too.
    """

    command = "inspect"

    directories: tyro.conf.Positional[tuple[str, ...]]
    """directories that realm wrote; several only with --plot"""
    html: str | None = None
    """write a page of 200 annotated passages with their spans marked"""
    plot: str | None = None
    """draw the curves of the directories' training runs into a PNG, instead of
    printing what they hold"""

    def run(self) -> Artifact | None:
        """Opens the directory; writes the page or the plot.

        Returns:
            The object of the directory's class; `None` with `plot`.

        Raises:
            InputError: if no command finished writing it, it holds no
                log, or a file cannot be written.
        """
        if self.plot is not None:
            self.refuse_given(("html",), "--plot")
            self._plot()
            return None
        if len(self.directories) != 1:
            raise InputError(
                "Expected one directory (several with --plot). Received: "
                f"{' '.join(self.directories) or 'none'}"
            )
        (directory,) = self.directories
        # The base directory of an export holds versions.
        if not artifact.is_complete(directory) and (
            saved_models.version_directories(directory)
        ):
            directory = saved_models.find_version(directory)
        found = objects.open_any(directory)
        if self.html is not None:
            from realm_tf.tagging import page

            page.write_page(found.path, self.html)
        return found

    def _plot(self):
        from realm_tf.training import plots
        from realm_tf.training import training_log

        names = [
            os.path.basename(each.rstrip("/")) for each in self.directories
        ]
        if len(set(names)) < len(names):
            names = self.directories
        logs = map(training_log.read_log, self.directories)
        plots.plot_training(dict(zip(names, logs, strict=True)), self.plot)

    def report(self, result: Artifact | None) -> str:
        if result is None:
            return self.plot
        metadata = json.dumps(result.metadata, indent=2, ensure_ascii=False)
        lines = [repr(result), metadata]
        if self.html is not None:
            lines.append(f"\n{self.html}: open it in a browser")
        return "\n".join(lines)
