"""Find the repository of a directory that the user names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sandbox.cli.invocation import note
from sandbox.errors import SandboxError
from sandbox.lazy_pattern import lazy_pattern
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

_SHOWN = 5
_IS_PATH_OR_OPTION = lazy_pattern(r"[-/~]|\.{1,2}(?:/|\Z)")
_IS_RELATIVE = lazy_pattern(r"[\w.+-]+(?:/[\w.+-]+)*/?\Z")  # so no credential


def locate_repository(workbench: Workbench, url: str) -> str:
    """Find the URL to use. If `url` is a directory inside a repository, use the repository and print a note."""
    try:
        found = workbench.locate(url)
    except SandboxError as error:
        if _IS_PATH_OR_OPTION.match(url):
            raise
        if not os.path.isdir(url):  # noqa: PTH112 - never raises
            if _IS_RELATIVE.match(url):
                raise SandboxError(
                    error.code,
                    f"There is no directory '{url}', and it is no URL of a git repository",
                    hint=_name_registered(workbench, url) or error.hint,
                ) from error
            raise
        found = workbench.locate(f"./{url}")  # no URL, but the name of a directory
        if found == f"./{url}":
            return found
    if found != url:
        note(f"note: {one_line(url)} is inside {one_line(unquote(found.removeprefix('file://')))}")
    return found


def _name_registered(workbench: Workbench, name: str) -> str:
    """The URLs of the registered repositories that have this id or name; '' for none."""
    found = [one for one in workbench.repositories() if name in (one.id, one.name)]
    urls = ", ".join(_show_url(one.remote_url) for one in found[:_SHOWN])
    if not found:
        return ""
    one = f"{found[0].id} is a registered repository: give its URL, {urls}"
    return one if len(found) == 1 else f"Registered repositories have that name: give the URL of one of them, {urls}"


def _show_url(url: str) -> str:
    return one_line(unquote(url.removeprefix("file://")) if url.startswith("file://") else url)
