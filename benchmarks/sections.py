"""Sections of Markdown files that scripts write, between comments that begin and end them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def write_section(path: Path, section: str, text: str) -> None:
    pattern = re.compile(f"(?<=<!-- begin: {section} -->\n).*(?=\n<!-- end: {section} -->)", re.DOTALL)
    before = path.read_text()
    if not pattern.search(before):
        raise ValueError(f"{path.name} has no section {section}")
    path.write_text(pattern.sub(lambda _: text, before))
    print(f"wrote {path.relative_to(ROOT)}, {section}")
