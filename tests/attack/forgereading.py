"""What GitHub and GitLab make of a text: recognisers of all that an attacker wants them to find in a pull request.

Markdown is read by GitHub's own parser. What comes after it on the forges is not published whole, so it is recognised
here more generously than they do. Sources: the page headers of `sandbox/forges/escape.py`; GitLab's
lib/gitlab/quick_actions/extractor.rb, lib/gitlab/closing_issue_extractor.rb and lib/gitlab/front_matter.rb.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

import cmarkgfm
from cmarkgfm.cmark import Options

HARMLESS_TAGS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br"}) | {
    *("pre", "code", "em", "strong", "span", "table", "thead", "tbody", "tr", "th", "td")
}
_OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES | Options.CMARK_OPT_GITHUB_PRE_LANG
_IN_TEXT = {
    "mention": r"(?<![\w`])@[\w.\"]",
    "reference": r"(?:^|[^\w`])[\w./-]*[#!]\d|\bGH-\d|\b[A-Z][A-Z0-9_]+-\d",
    "label, milestone, epic, snippet": r"[~%][\w\"]|[&$^]\d|\^alert#|\*iteration:",
    "named reference": r"\[(?:issue|epic|vulnerability|work_item|wiki_page|contact|feature_flag):",
    "emoji": r":[a-z0-9_+-]+:",
    "math": r"\$\S(?:[^$]*\S)?\$",
    "commit": r"(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])",
    "URL": r"(?i)\b[a-z][a-z0-9+.-]*://\S|www\.\w|mailto:\S|[\w.]@\w+\.\w",
    "task list": r"^\s*\[[ xX~]\]",
    "marked change": r"\{\+.*\+\}|\[-.*-\]",
}
_IN_SOURCE = {
    "table of contents": r"(?m)^\s*(?:\[\[_TOC_\]\]|\[TOC\])\s*$",
    "header of data": r"(?m)\A(?:.*coding:.*\n)?\s*^(?:---|\+\+\+|;;;)[ \t]*\S*\n[^\0]*?^(?:---|\+\+\+|;;;|\.{3})\s*$",
    "quick action": r"(?m)^\s*/\w",
    "closing words": r"(?i)\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)"
    r":?\s+(?:issues? +)?`?(?:[\w./-]*[#!]\d|https?://\S|[a-z][a-z0-9_]*-\d)",
    "skipped CI": r"(?i)\[(?:skip ci|ci skip|no ci|skip actions|actions skip)\]|^skip-checks: ?true|\*\*\*NO_CI\*\*\*",
    "trailer": r"(?im)^(?:co-authored-by|signed-off-by): ",
    "invisible text": "[\u00ad\u3164\u061c\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]|\x1b",
}


class _Page(HTMLParser):
    """Tags, languages of code blocks, comments and pieces of text of a rendered page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.languages: set[str] = set()
        self.outside_code: list[str] = []
        self.everything = ""
        self.comments = html.count("<!--")  # also one that does not end
        self._code = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.languages |= {str(value) for name, value in attrs if tag == "pre" and name == "lang"}
        self._code += tag in {"code", "pre"}

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in {"code", "pre"}

    def handle_data(self, data: str) -> None:
        self.everything += data
        if not self._code:
            self.outside_code.append(data)


def render(markdown: str) -> _Page:
    """The page, with whatever HTML the text brings along."""
    return _Page(cmarkgfm.github_flavored_markdown_to_html(markdown, _OPTIONS))


def visible(markdown: str) -> str:
    """What a reader sees."""
    return render(markdown).everything.replace("\u200b", "")


def findings(markdown: str, own_comments: int = 0) -> set[str]:
    """What a forge would do with the text that its reader does not expect, in words."""
    page = render(markdown)
    found = {f"<{tag}>" for tag in page.tags - HARMLESS_TAGS} | {f"language {name}" for name in page.languages}
    found |= {name for name, sign in _IN_TEXT.items() for text in page.outside_code if re.search(sign, text)}
    found |= {name for name, sign in _IN_SOURCE.items() if re.search(sign, markdown)}
    return found | ({"comment"} if page.comments != own_comments else set())


def title_findings(title: str) -> set[str]:
    """The same for a title, which is no Markdown (so there is no math in it), and is a line."""
    found = {name for name, sign in (_IN_TEXT | _IN_SOURCE).items() if re.search(sign, title)} - {"math"}
    found |= {"draft"} if re.match(r"(?i)\s*(?:\[?\(?(?:draft|wip)\b[\]):]?|draft - )", title) else set()
    return found | ({"line break"} if len(title.splitlines()) != 1 else set())
