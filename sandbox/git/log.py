"""What the commits of a range say of themselves."""

from __future__ import annotations

from sandbox.git.process import Git

MOST_COMMITS = 2000
_COLUMNS = 300
_FORMAT = f"--format=%H %<({_COLUMNS},trunc)%s"  # git fills short ones with spaces
_BYTES_A_LINE = 65 + 8 * _COLUMNS  # columns, of which one may take several characters


def subjects(git: Git, base: str, head: str) -> tuple[tuple[str, str], ...]:
    """Id and subject of the commits on `head` that `base` does not have, oldest first: the newest `MOST_COMMITS`.

    Subjects are cut at 300 columns. They are others' text, in UTF-8 with replacement.
    """
    if base == head:
        return ()
    which = (f"--max-count={MOST_COMMITS}", "--topo-order", "--reverse", "--encoding=UTF-8", "--no-commit-header")
    found = git.attempt("rev-list", *which, _FORMAT, head, f"^{base}", output_limit=MOST_COMMITS * _BYTES_A_LINE)
    lines = found.required("rev-list").stdout.decode("utf-8", errors="replace").split("\n")
    return tuple((oid, subject.rstrip()) for oid, _, subject in (line.partition(" ") for line in lines) if oid)
