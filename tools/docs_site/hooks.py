"""Hooks of MkDocs: build the reference, and keep options whole where lines break."""

import re

import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that list commands and settings."""
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **arguments: object) -> str:
    """Fill in the lists of settings that may change on resume, and that must stay."""
    return reference.with_settings_on_resume(markdown)


def on_page_content(html: str, **arguments: object) -> str:
    """Wrap the names of options in inline code, such as `--model_dir`, in spans.

    A browser may break a line after any hyphen, so also after the two of an option.
    """
    in_block = "<pre><span></span>"
    inline = re.compile(rf"(?<!{in_block})<code>(?P<code>[^<]*--[^<]*)</code>")
    return inline.sub(_wrap_options, html)


def _wrap_options(match: re.Match[str]) -> str:
    code = re.sub(r"(--[\w\[\]-]+)", r'<span class="option">\1</span>', match["code"])
    return f"<code>{code}</code>"
