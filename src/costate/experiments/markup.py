"""Pieces of HTML that the sections of a report share."""

import html
from collections.abc import Sequence


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, *, escaped: bool = False
) -> str:
    """A table that scrolls where the page is too narrow; the first ``left`` columns hold words. ``escaped`` cells are HTML already."""

    def cell(tag: str, index: int, content: str) -> str:
        return f"<{tag}{' class=left' if index < left else ''}>{content if escaped and tag == 'td' else text(content)}</{tag}>"

    head = "".join(cell("th", i, name) for i, name in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(cell('td', i, content) for i, content in enumerate(row))}</tr>" for row in rows
    )
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def text(value: str) -> str:
    """Words as HTML."""
    return html.escape(value)
