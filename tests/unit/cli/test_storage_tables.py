"""`sandbox storage`: one row for each kind, whatever the number of repositories; with `--all` each share."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sandbox.cli.storage_tables import show_storage
from sandbox.models.storage import RepositoryStorage, Storage, StorageKind, StorageUse

REPOSITORIES = ("host-o-small", "host-o-large")


def rows_of(text: str, word: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith(word)]


@pytest.mark.parametrize("with_parts", [False, True])
def test_a_kind_is_one_row_or_one_for_each_repository(capsys: pytest.CaptureFixture[str], *, with_parts: bool) -> None:
    uses = [
        StorageUse(kind=StorageKind.LOGS, repo_id=repo, bytes=size * 1024, files=size, limit="1 MiB", removal="by age")
        for size, repo in enumerate(REPOSITORIES, 1)
    ]
    held = [
        RepositoryStorage(repo_id=repo, bytes=use.bytes, files=use.files)
        for repo, use in zip(REPOSITORIES, uses, strict=True)
    ]
    found = Storage(
        measured_at=datetime.now(UTC), bytes=3072, files=3, only_here_bytes=0, free_bytes=1, min_free_bytes=1,
        min_free_files=1, uses=tuple(uses), repositories=tuple(held), tasks=(), reclaimable=(),
    )  # fmt: skip
    show_storage(found, with_parts=with_parts)
    shown = capsys.readouterr().out
    parts = ["logs host-o-small 1 KiB 1 1 MiB by age", "logs host-o-large 2 KiB 2 1 MiB by age"]
    assert rows_of(shown, "logs") == (parts if with_parts else ["logs 3 KiB 3 1 MiB by age"])
    assert rows_of(shown, "host-o") == ["host-o-large 2 KiB", "host-o-small 1 KiB"], "the largest first"
