"""PDF files of a few lines, made by hand."""


def small_pdf(pages: list[list[str]], *, title: str = "") -> bytes:
    """A PDF with so many pages, each of some lines of ASCII."""
    first = 4
    kids = " ".join(f"{first + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, lines in enumerate(pages):
        shown = " T* ".join(f"({line}) Tj" for line in lines)
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            "/Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {first + 2 * number + 1} 0 R >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    objects.append(f"<< /Title ({title}) >>")
    content, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(content))
        content += f"{number} 0 obj\n{each}\nendobj\n"
    start = len(content)
    rows = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    content += f"xref\n0 {size}\n0000000000 65535 f \n{rows}"
    content += (
        f"trailer\n<< /Size {size} /Root 1 0 R /Info {len(objects)} 0 R >>\n"
        f"startxref\n{start}\n%%EOF\n"
    )
    return content.encode("ascii")
