"""HTML helpers that the sections of a report share."""

import html
from collections.abc import Sequence


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, *, escaped: bool = False
) -> str:
    """Return a table that scrolls if the page is too narrow.

    The first ``left`` columns are left-aligned words. ``escaped`` cells are HTML already.
    """

    def cell(tag: str, index: int, content: str) -> str:
        shown = content if escaped and tag == "td" else text(content)
        return f"<{tag}{' class=left' if index < left else ''}>{shown}</{tag}>"

    head = "".join(cell("th", i, name) for i, name in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(cell('td', i, content) for i, content in enumerate(row))}</tr>" for row in rows
    )
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def text(value: str) -> str:
    """Escape text for HTML."""
    return html.escape(value)
