"""What a run of the quick start found, as text."""

from rich.console import Console
from rich.table import Table


def render(summary: dict, saved_model: str) -> str:
    """Two tables, and what to do next.

    Args:
        summary: dict. What `operations.quickstart.Quickstart.run` returns.
        saved_model: str. The base directory of the export.
    """
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(_metrics(summary["metrics"]))
        console.print(_times(summary))
        memory = summary["peak_memory_bytes"] / 1e9
        console.print(
            f"Peak memory {memory:.1f} GB.\n\n"
            "Go on with:\n"
            f"  realm serve --saved-model {saved_model}"
            "   (then open http://127.0.0.1:8501/)\n"
            '  realm ask "when was uranus discovered"\n'
            f"  realm ask --saved-model {saved_model} "
            '"when was uranus discovered"',
            soft_wrap=True,
        )
    return captured.get().rstrip("\n")


def _metrics(metrics):
    table = Table(
        title="\nTest questions (95 % interval)", title_justify="left"
    )
    for name in ("metric", "own retriever", "BM25, same reader"):
        table.add_column(name)
    for name in metrics["realm"]:
        if f"{name}_interval" in metrics["realm"]:
            cells = (_cell(metrics[r], name) for r in ("realm", "bm25"))
            table.add_row(name, *cells)
    table.add_row("questions", *(str(metrics[r]["questions"]) for r in metrics))
    return table


def _cell(metrics, name):
    low, high = metrics[f"{name}_interval"]
    return f"{metrics[name]:.3f}  ({low:.3f} to {high:.3f})"


def _times(summary):
    table = Table(title="\nTime", title_justify="left")
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for title, seconds in summary["seconds"].items():
        table.add_row(title, f"{seconds:.0f}")
    table.add_row("all of this run", f"{summary['total_seconds']:.0f}")
    return table
