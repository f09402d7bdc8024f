"""What mkdocs can't know: the pages and files outside of docs/, and the families of rules.

mkdocs calls these functions. On the site, what lies outside of docs/ is in repository/.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ELSEWHERE = "repository/"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
ROW = re.compile(r"^\| \[(\w+)\]\((\w+\.md)\) \| ([\w-]+) ", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The pages of rules, by family, as their index has them."""
    _, *families = (ROOT / "docs/rules/README.md").read_text("utf-8").split("\n## ")
    rules = next(section["Rules"] for section in config.nav or () if "Rules" in section)
    for family in families:
        pages = [{f"{code} {name}": f"rules/{page}"} for code, page, name in ROW.findall(family)]
        rules.append({family.partition("\n")[0]: pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("skills/**/*.md")):
        add(page.relative_to(ROOT).as_posix(), files, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to the same files as in the repository."""
    here = page.file.src_uri
    folder = dirname(here.removeprefix(ELSEWHERE) if here.startswith(ELSEWHERE) else f"docs/{here}")

    def moved(link: re.Match[str]) -> str:
        target = normpath(join(folder, link[1]))
        if target.startswith("docs/"):
            return relpath(target.removeprefix("docs/"), dirname(here))
        if (ROOT / target).is_file():
            add(target, files, config)
        return relpath(ELSEWHERE + target, dirname(here))

    return LINK.sub(moved, markdown)


def add(path: str, files: Files, config: MkDocsConfig) -> None:
    if files.get_file_from_path(ELSEWHERE + path) is None:
        files.append(File.generated(config, ELSEWHERE + path, abs_src_path=str(ROOT / path)))
