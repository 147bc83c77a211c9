"""GitLab's REST API, as far as we use it, in the terms of OpenAPI.

GitLab publishes its description only inside its repository (`doc/api/openapi/openapi_v3.yaml`, 4 MB, CC BY-SA), not on
a registry, and what it says of answers requires no field and lets none be null. So this is our own, stricter one, with
the names and types of GitLab's reference (docs.gitlab.com/api, 19.5) and of its entities (`lib/api/entities`), those of
merge requests and pipelines compared with that file: operations we use, parameters we may use, fields of the answers.
Fields of paid tiers are left out; unlike the real thing, an answer may have no others, so that a slip in a case shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ENTITIES = {
    "User": "id:integer username:string name:string state:string locked:boolean avatar_url:string? web_url:string "
            "public_email:string? bot:boolean~",
    "Namespace": "id:integer name:string path:string kind:string full_path:string parent_id:integer? "
                 "avatar_url:string? web_url:string",
    "Project": "id:integer description:string? name:string name_with_namespace:string path:string "
               "path_with_namespace:string created_at:time default_branch:string? ssh_url_to_repo:string "
               "http_url_to_repo:string web_url:string readme_url:string? forks_count:integer star_count:integer "
               "last_activity_at:time namespace:Namespace archived:boolean visibility:string empty_repo:boolean "
               "merge_requests_enabled:boolean jobs_enabled:boolean permissions:Permissions merge_method:string "
               "only_allow_merge_if_pipeline_succeeds:boolean",
    "Permissions": "project_access:Access? group_access:Access?",
    "Access": "access_level:integer notification_level:integer",
    "Pipeline": "id:integer iid:integer project_id:integer sha:string ref:string status:pipeline_status source:string "
                "created_at:time updated_at:time web_url:string name:string?~",
    "HeadPipeline": "id:integer iid:integer project_id:integer sha:string ref:string status:pipeline_status "
                    "source:string created_at:time updated_at:time web_url:string before_sha:string? tag:boolean "
                    "yaml_errors:string? user:User started_at:time? finished_at:time? committed_at:time? "
                    "duration:integer? queued_duration:integer? coverage:any? name:string?~ "
                    "detailed_status:DetailedStatus archived:boolean~",
    "DetailedStatus": "icon:string text:string label:string group:string tooltip:string has_details:boolean "
                      "details_path:string illustration:any? favicon:string action:any~",
    "MergeRequestBasic": "id:integer iid:integer project_id:integer title:string description:string? state:mr_state "
                         "created_at:time updated_at:time merged_by:User? merge_user:User? merged_at:time? "
                         "closed_by:User? closed_at:time? target_branch:string source_branch:string "
                         "user_notes_count:integer upvotes:integer downvotes:integer author:User assignees:[User] "
                         "assignee:User? reviewers:[User] source_project_id:integer? target_project_id:integer "
                         "labels:[string] draft:boolean imported:boolean imported_from:string work_in_progress:boolean "
                         "milestone:any? merge_when_pipeline_succeeds:boolean merge_status:string "
                         "detailed_merge_status:merge_status merge_after:time? sha:string? merge_commit_sha:string? "
                         "squash_commit_sha:string? discussion_locked:boolean? should_remove_source_branch:boolean? "
                         "force_remove_source_branch:boolean? prepared_at:time? reference:string references:References "
                         "web_url:string time_stats:any squash:boolean squash_on_merge:boolean "
                         "task_completion_status:any has_conflicts:boolean blocking_discussions_resolved:boolean",
    "MergeRequest": "+MergeRequestBasic subscribed:boolean changes_count:string? latest_build_started_at:time? "
                    "latest_build_finished_at:time? first_deployed_to_production_at:time? pipeline:Pipeline? "
                    "head_pipeline:HeadPipeline? diff_refs:DiffRefs? merge_error:string? user:CanMerge "
                    "first_contribution:boolean",
    "References": "short:string relative:string full:string",
    "DiffRefs": "base_sha:string? head_sha:string? start_sha:string?",
    "CanMerge": "can_merge:boolean",
    "Job": "id:integer status:job_status stage:string name:string ref:string tag:boolean coverage:number? "
           "allow_failure:boolean created_at:time started_at:time? finished_at:time? erased_at:time? duration:number? "
           "queued_duration:number? user:User? commit:any pipeline:Pipeline failure_reason:string~ web_url:string "
           "project:any artifacts:[any] artifacts_expire_at:time? tag_list:[string] runner:any? runner_manager:any? "
           "archived:boolean",
    "Bridge": "id:integer status:job_status stage:string name:string ref:string tag:boolean coverage:number? "
              "allow_failure:boolean created_at:time started_at:time? finished_at:time? erased_at:time? "
              "duration:number? queued_duration:number? user:User? commit:any pipeline:Pipeline failure_reason:string~ "
              "web_url:string project:any downstream_pipeline:Pipeline?",
    "Commit": "id:string short_id:string created_at:time parent_ids:[string] title:string message:string "
              "author_name:string author_email:string authored_date:time committer_name:string committer_email:string "
              "committed_date:time trailers:any extended_trailers:any web_url:string stats:any~ status:string? "
              "project_id:integer last_pipeline:Pipeline?",
    "CommitStatus": "id:integer sha:string ref:string status:job_status name:string target_url:string? "
                    "description:string? created_at:time started_at:time? finished_at:time? allow_failure:boolean "
                    "coverage:number? pipeline_id:integer? author:User",
}  # fmt: skip
"""Name and type of each field. `?`: may be null; `~`: may be missing; `[T]`: a list; `+E`: also the fields of E."""

_WORDS = {
    "mr_state": "opened closed locked merged",
    "pipeline_status": "created waiting_for_resource preparing pending running success failed canceling canceled "
                       "skipped manual scheduled",
    "job_status": "created waiting_for_resource preparing waiting_for_callback pending running success failed "
                  "canceling canceled skipped manual scheduled",
    "merge_status": "approvals_syncing blocked_status checking ci_must_pass ci_still_running commits_status conflict "
                    "discussions_not_resolved draft_status jira_association_missing locked_lfs_files locked_paths "
                    "merge_request_blocked merge_time mergeable need_rebase not_approved not_open preparing "
                    "requested_changes security_policy_pipeline_check security_policy_violations "
                    "status_checks_must_pass title_regex unchecked",
}  # fmt: skip
_PLAIN: dict[str, dict[str, Any]] = {
    "integer": {"type": "integer"}, "string": {"type": "string"}, "boolean": {"type": "boolean"},
    "number": {"type": "number"}, "time": {"type": "string", "format": "date-time"}, "any": {},
    **{name: {"type": "string", "enum": words.split()} for name, words in _WORDS.items()},
}  # fmt: skip

_PAGES = "page:integer per_page:integer"
_KEYSET = f"{_PAGES} pagination:string order_by:string sort:string cursor:string"
_MR = "/projects/{id}/merge_requests"
_CHANGES = (
    "title:string description:string target_branch:string labels:string assignee_id:integer squash:boolean "
    "assignee_ids:[integer] reviewer_ids:[integer] remove_source_branch:boolean milestone_id:integer"
)
_OPERATIONS = (
    ("get", "/projects/{id}", "statistics:boolean license:boolean", "", "Project"),
    ("get", _MR, f"{_KEYSET} state:string source_branch:string target_branch:string scope:string view:string "
                 "source_project_id:integer iids[]:[integer]", "", "[MergeRequestBasic]"),
    ("post", _MR, "", f"!source_branch:string target_project_id:integer allow_collaboration:boolean {_CHANGES} "
                      "!title !target_branch", "MergeRequest"),
    ("get", f"{_MR}/{{iid}}", "include_diverged_commits_count:boolean include_rebase_in_progress:boolean "
                              "render_html:boolean", "", "MergeRequest"),
    ("put", f"{_MR}/{{iid}}", "", f"state_event:string discussion_locked:boolean {_CHANGES}", "MergeRequest"),
    ("get", f"{_MR}/{{iid}}/pipelines", _PAGES, "", "[Pipeline]"),
    ("get", "/projects/{id}/pipelines", f"{_KEYSET} sha:string ref:string status:string", "", "[Pipeline]"),
    ("get", "/projects/{id}/pipelines/{pipeline}", "", "", "HeadPipeline"),
    ("get", "/projects/{id}/pipelines/{pipeline}/jobs", f"{_KEYSET} scope[]:[string] include_retried:boolean", "",
     "[Job]"),
    ("get", "/projects/{id}/pipelines/{pipeline}/bridges", f"{_KEYSET} scope[]:[string]", "", "[Bridge]"),
    ("get", "/projects/{id}/repository/commits/{sha}", "stats:boolean", "", "Commit"),
    ("get", "/projects/{id}/repository/commits/{sha}/statuses",
     f"{_KEYSET} ref:string stage:string name:string all:boolean pipeline_id:integer", "", "[CommitStatus]"),
    ("get", "/projects/{id}/jobs/{job}", "", "", "Job"),
    ("get", "/projects/{id}/jobs/{job}/trace", "", "", "text"),
    ("get", "/user", "", "", "User"),
)  # fmt: skip
"""Method, path, query, fields of the body (`!`: required), what it answers."""


def description() -> Mapping[str, Any]:
    """An OpenAPI document."""
    paths: dict[str, Any] = {}
    for method, path, query, body, answered in _OPERATIONS:
        paths.setdefault(path, {})[method] = _operation(method, query, body, answered)
    return {
        "openapi": "3.0.0",
        "info": {"title": "GitLab REST API, what we use of it", "version": "v4"},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR, **{name: _entity(text) for name, text in _ENTITIES.items()}}},
    }


_ERROR = {
    "type": "object",
    "anyOf": [{"required": ["message"]}, {"required": ["error"]}],
    "properties": {"message": {}, "error": {"type": "string"}, "error_description": {"type": "string"},
                   "scope": {"type": "string"}},
    "additionalProperties": False,
}  # fmt: skip
"""Two kinds, of two libraries inside GitLab. `message` is a string, a list of them, or lists by field."""


def _operation(method: str, query: str, body: str, answered: str) -> dict[str, Any]:
    fault = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    rate = {"content": {"text/plain": {}, **fault["content"]}}
    content = {"text/plain": {}} if answered == "text" else {"application/json": {"schema": _type(answered)}}
    found = {
        "parameters": [{"in": "query", "name": name, "schema": _type(kind)} for name, kind in _pairs(query)],
        "responses": {
            {"post": "201"}.get(method, "200"): {"content": content},
            **{str(status): fault for status in (400, 401, 403, 404, 405, 409, 422)},
            "429": rate,
        },
    }
    if body:
        schema = {"type": "object", "required": re.findall(r"!(\w+)", body),
                  "properties": {name: _type(kind) for name, kind in _pairs(body)}}  # fmt: skip
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def _entity(text: str) -> dict[str, Any]:
    inherited = re.match(r"\+(\w+)", text)
    pairs = [*(_pairs(_ENTITIES[inherited[1]]) if inherited else []), *_pairs(text)]
    return {
        "type": "object",
        "required": [name for name, kind in pairs if "~" not in kind],
        "properties": {name: _type(kind) for name, kind in pairs},
        "additionalProperties": False,
    }


def _pairs(text: str) -> list[tuple[str, str]]:
    rows = (word.lstrip("!").split(":") for word in text.split() if ":" in word)
    return [(name, kind) for name, kind in rows]


def _type(kind: str) -> dict[str, Any]:
    plain = kind.rstrip("?~")
    if plain.startswith("["):
        found: dict[str, Any] = {"type": "array", "items": _type(plain[1:-1])}
    elif plain in _PLAIN:
        found = dict(_PLAIN[plain])
    else:
        found = {"allOf": [{"$ref": f"#/components/schemas/{plain}"}]}
    return {**found, "nullable": True} if "?" in kind else found
