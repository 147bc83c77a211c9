"""What GitLab shows of things: complete by our description, with what a test gives over what is usual."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devtools.forges.exchange import Request

_DRAFT = re.compile(r"\s*(\[draft\]|\(draft\)|draft:)", re.IGNORECASE)
_AT = "2024-01-01T00:00:00.000Z"
_OF_JOBS_ONLY = {"artifacts", "artifacts_expire_at", "tag_list", "runner", "runner_manager", "archived"}


@dataclass
class MergeRequest:
    """While it is open, `sha` follows its branch. Its draft state is a prefix of its title; there is no other."""

    iid: int
    source: str
    target: str
    title: str
    description: str | None
    state: str = "opened"
    sha: str | None = None

    @property
    def draft(self) -> bool:
        return bool(_DRAFT.match(self.title))


@dataclass(frozen=True)
class Bodies:
    """Of one project, as one request is told of it."""

    request: Request
    owner: str
    name: str
    project_id: int
    default_branch: str

    @property
    def _site(self) -> str:
        return self.request.base_url.removesuffix("/api/v4")

    @property
    def _web(self) -> str:
        return f"{self._site}/{self.owner}/{self.name}"

    def project(self) -> dict[str, Any]:
        return {
            "id": self.project_id, "description": None, "name": self.name, "path": self.name, "created_at": _AT,
            "name_with_namespace": f"{self.owner} / {self.name}", "path_with_namespace": f"{self.owner}/{self.name}",
            "default_branch": self.default_branch, "ssh_url_to_repo": f"git@localhost:{self.owner}/{self.name}.git",
            "http_url_to_repo": f"{self._web}.git", "web_url": self._web, "readme_url": None, "forks_count": 0,
            "star_count": 0, "last_activity_at": _AT, "archived": False, "visibility": "private", "empty_repo": False,
            "merge_requests_enabled": True, "jobs_enabled": True, "merge_method": "merge",
            "only_allow_merge_if_pipeline_succeeds": False,
            "permissions": {"project_access": {"access_level": 30, "notification_level": 3}, "group_access": None},
            "namespace": {"id": 3, "name": self.owner, "path": self.owner, "kind": "user", "full_path": self.owner,
                          "parent_id": None, "avatar_url": None, "web_url": f"{self._site}/{self.owner}"},
        }  # fmt: skip

    def user(self) -> dict[str, Any]:
        return {"id": 5, "username": "demo", "name": "Demo", "state": "active", "locked": False, "avatar_url": None,
                "web_url": f"{self._site}/demo", "public_email": None}  # fmt: skip

    def commit(self, sha: str, parents: list[str]) -> dict[str, Any]:
        who = {f"{role}_{what}": "Demo" for role in ("author", "committer") for what in ("name", "email")}
        return {
            "id": sha, "short_id": sha[:8], "created_at": _AT, "parent_ids": parents, "title": "Merge",
            "message": "Merge", "authored_date": _AT, "committed_date": _AT, "trailers": {}, "extended_trailers": {},
            "web_url": f"{self._web}/-/commit/{sha}", "status": None, **who, "project_id": self.project_id,
            "last_pipeline": None,
        }  # fmt: skip

    def commit_status(self, sha: str, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"id": 93, "sha": sha, "ref": self.default_branch, "status": "success", "name": "default",
                "target_url": None, "description": None, "created_at": _AT, "started_at": None, "finished_at": None,
                "allow_failure": False, "coverage": None, "pipeline_id": None, "author": self.user(),
                **given}  # fmt: skip

    def merge_request(self, mr: MergeRequest, merge_status: str) -> dict[str, Any]:
        """As lists show it."""
        reference = f"!{mr.iid}"
        return {
            "id": 100 + mr.iid, "iid": mr.iid, "project_id": self.project_id, "title": mr.title, "state": mr.state,
            "description": mr.description, "created_at": _AT, "updated_at": _AT, "merged_by": None, "merge_user": None,
            "merged_at": _AT if mr.state == "merged" else None, "closed_by": None, "sha": mr.sha,
            "closed_at": _AT if mr.state == "closed" else None, "target_branch": mr.target, "source_branch": mr.source,
            "user_notes_count": 0, "upvotes": 0, "downvotes": 0, "author": self.user(), "assignees": [],
            "assignee": None, "reviewers": [], "labels": [], "source_project_id": self.project_id,
            "target_project_id": self.project_id, "draft": mr.draft, "imported": False, "imported_from": "none",
            "work_in_progress": mr.draft, "milestone": None, "merge_when_pipeline_succeeds": False,
            "merge_status": "can_be_merged", "merge_after": None, "detailed_merge_status": merge_status,
            "merge_commit_sha": None, "squash_commit_sha": None, "discussion_locked": None,
            "should_remove_source_branch": None, "force_remove_source_branch": None, "prepared_at": _AT,
            "reference": reference, "time_stats": {}, "squash": False, "squash_on_merge": False,
            "references": {"short": reference, "relative": reference, "full": f"{self.owner}/{self.name}{reference}"},
            "web_url": f"{self._web}/-/merge_requests/{mr.iid}", "has_conflicts": False,
            "task_completion_status": {"count": 0, "completed_count": 0}, "blocking_discussions_resolved": True,
        }  # fmt: skip

    def one(self, basic: Mapping[str, Any], pipeline: Mapping[str, Any] | None, base: str | None) -> dict[str, Any]:
        """A merge request that is asked for alone. `basic`: as lists show it; `base`: where its target is."""
        return {
            **basic, "subscribed": True, "changes_count": "1", "latest_build_started_at": None,
            "latest_build_finished_at": None, "first_deployed_to_production_at": None, "merge_error": None,
            "pipeline": self.pipeline(pipeline) if pipeline else None,
            "head_pipeline": self.whole_pipeline(pipeline) if pipeline else None,
            "diff_refs": {"base_sha": base, "head_sha": basic["sha"], "start_sha": base},
            "user": {"can_merge": True}, "first_contribution": False,
        }  # fmt: skip

    def pipeline(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """As lists show it."""
        web = f"{self._web}/-/pipelines/{given['id']}"
        return {"iid": given["id"], "project_id": self.project_id, "ref": self.default_branch, "source": "push",
                "created_at": _AT, "updated_at": _AT, "web_url": web, "name": None, **given}  # fmt: skip

    def whole_pipeline(self, given: Mapping[str, Any]) -> dict[str, Any]:
        words = ("icon", "text", "label", "group", "tooltip", "favicon", "details_path")
        detailed = {**dict.fromkeys(words, given["status"]), "has_details": True, "illustration": None}
        return {**self.pipeline(given), "before_sha": None, "tag": False, "yaml_errors": None, "user": self.user(),
                "started_at": _AT, "finished_at": None, "committed_at": None, "duration": None, "queued_duration": 1,
                "coverage": None, "detailed_status": detailed}  # fmt: skip

    def job(self, pipeline: Mapping[str, Any], position: int, given: Mapping[str, Any]) -> dict[str, Any]:
        number = given.get("id", pipeline["id"] * 1000 + position)
        return {"id": number, "status": "success", "stage": "test", "name": f"job {position}", "tag": False,
                "ref": self.default_branch, "coverage": None, "allow_failure": False, "created_at": _AT,
                "started_at": _AT, "finished_at": _AT, "erased_at": None, "duration": 1.5, "queued_duration": 0.1,
                "user": self.user(), "commit": {"id": pipeline["sha"]}, "pipeline": self.pipeline(pipeline),
                "web_url": f"{self._web}/-/jobs/{number}", "project": {"ci_job_token_scope_enabled": False},
                "artifacts": [], "artifacts_expire_at": None, "tag_list": [], "runner": None, "runner_manager": None,
                "archived": False, **given}  # fmt: skip

    def bridge(self, pipeline: Mapping[str, Any], position: int, given: Mapping[str, Any]) -> dict[str, Any]:
        job = self.job(pipeline, 500 + position, given)
        return {"downstream_pipeline": None, **{name: v for name, v in job.items() if name not in _OF_JOBS_ONLY}}
