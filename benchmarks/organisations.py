"""Documents and questions of 184 invented organisations.

    python benchmarks/organisations.py --model DIR --output DIR

organisations.tar.xz has a folder for each: a hospital, a railway, a bakery chain and so
on. It holds 11 or 12 documents in Markdown, HTML, CSV and plain text, and
questions.jsonl: 43 or 44 questions with their document and the excerpt that answers
them. A language model wrote all of them for this project, the questions in the words of
people who have not read the documents. Nobody who wrote them saw the handbook of the
tests. 178 organisations are train, the other six dev.

The archive's products/ has the documentation of 102 invented products, 8 or 9 pages each
in Markdown, HTML and reStructuredText: 32 software products, and 14 each of desktop
applications, servers, libraries, machines, and rule books of a community. Each has 40 to
72 such questions, and in near_misses.jsonl 15 to 43 that the pages do not answer, each
with the page that a reader would look at. Five of the 32 are dev.

Prints what a model answers of dev and refuses, as documents.py tells it. Each question
is asked over the documents of its own organisation or product. Near misses of an
organisation are its questions, asked while their own document is left out.
"""

import json
import pathlib
import shutil
import tarfile

import documents
import tyro

from realm_tf.articles import collecting
from realm_tf.articles.sources import Source

DEV = (
    *("ak-karga-tents", "larrungain-eraiki", "meltemia-cars"),
    *("radio-tamarinier", "skarvsund-kraft", "tambalagama-spices"),
)
# random.Random(0).sample(sorted(names), 5), drawn before any was asked.
DEV_PRODUCTS = (
    *("counterfoyle", "pallowick", "tamberline", "tidemarl", "yokefield"),
)
_ARCHIVE = pathlib.Path(__file__).with_name("organisations.tar.xz")
_QUESTIONS = "questions.jsonl"
_NEAR_MISSES = "near_misses.jsonl"


def main(*, model: str, output: str):
    """Measures a model.

    Args:
        model: model directory.
        output: where everything is kept.
    """
    folder = unpack(f"{output}/documents")
    return {
        each.name: measure(model, each, names, f"{output}/{each.name}")
        for each, names in (
            (folder, DEV),
            (folder.parent / "products", DEV_PRODUCTS),
        )
    }


def measure(model, folder, names, output) -> dict:
    """Makes one corpus of some organisations or products, and asks it.

    A filter leaves out the documents of others. reStructuredText, which the package
    does not know, is read as plain text.

    Args:
        model: str. Model directory.
        folder: path. Holds a folder for each.
        names: sequence of str. Of them.
        output: str. Where the corpus and the answers go.

    Returns:
        dict, see `documents.report`.
    """
    root = pathlib.Path(output)
    copies = root / "documents"
    for name in names:
        no_document = shutil.ignore_patterns(_QUESTIONS, _NEAR_MISSES)
        shutil.copytree(folder / name, copies / name, ignore=no_document)
    for path in copies.rglob("*.rst"):
        path.rename(f"{path}.txt")
    found = collecting.collect(Source.of(str(copies)))
    with open(f"{root}/articles.jsonl", "w") as file:
        for row in found.rows.values():
            document = row["file"].removeprefix(f"{copies.name}/")
            document = document.replace(".rst.txt", ".rst")
            owner, _, _ = document.partition("/")
            row.update(url=document, document=document, owner=owner)
            file.write(json.dumps(row) + "\n")
    asked = [row for name in names for row in _asked(folder / name)]
    return documents.measure(
        sorted(asked, key=lambda row: row["filter"]),
        output,
        documents=file.name,
        model=model,
        fields=("owner", "document"),
    )


def _asked(folder):
    """The questions of an organisation or product, and its near misses."""

    def read(name):
        for line in (folder / name).read_text().splitlines():
            row = {"answer": [], **json.loads(line)}
            row["file"] = f"{folder.name}/{row['document']}"
            yield {**row, "filter": f"owner={folder.name}"}

    own = list(read(_QUESTIONS))
    if (folder / _NEAR_MISSES).exists():
        near = read(_NEAR_MISSES)
    else:
        near = (
            {**row, "filter": f"{row['filter']}; document!={row['file']}"}
            for row in own
        )
    return [*own, *({**row, "near_miss": True} for row in near)]


def unpack(folder: str) -> pathlib.Path:
    """Writes the documents and questions; returns their folder."""
    top = pathlib.Path(folder).resolve()
    with tarfile.open(_ARCHIVE) as archive:
        for member in archive:
            path = top.joinpath(member.name).resolve()
            # Python before 3.11.4 has no `extractall(filter="data")`.
            if member.isfile() and path.is_relative_to(top):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
    return top / "organisations"


if __name__ == "__main__":
    print(documents.table(tyro.cli(main, description=__doc__)))
