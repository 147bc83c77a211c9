"""The manifests under deploy/: valid for their schemas, complete in their references, no wider than they say."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from sandbox.config import Settings

DEPLOY = Path(__file__).parents[3] / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
VERSIONS = ("1.31", "1.37")
SECRET_FILES = {"credentials.toml", "ca.pem", "worker.pem", "worker-key.pem"}
"""What the comment of the kustomization says that the operator's secret has."""


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict), path
    return found


def find_problems(base: Path) -> Iterator[str]:
    """References of a kustomization, and of the pods in it, that lead nowhere."""
    plan = read(base / "kustomization.yaml")
    listed = set(plan["resources"])
    there = {path.name for path in base.glob("*.yaml")} - {"kustomization.yaml"}
    yield from (f"{name} does not exist" for name in listed - there)
    yield from (f"{name} is not in the kustomization" for name in there - listed)
    maps = {one["name"]: set(one["files"]) for one in plan["configMapGenerator"]}
    for name in set().union(*maps.values()):
        if not (base / name).is_file():
            yield f"{name} does not exist"
    resources = [read(base / name) for name in sorted(listed & there)]
    names = {(one["kind"], one["metadata"]["name"]) for one in resources}
    if ("Namespace", plan["namespace"]) not in names:
        yield f"namespace {plan['namespace']} does not exist"
    for one in resources:
        if one["kind"] == "DaemonSet":
            yield from find_pod_problems(one, names, {**maps, "worker-secrets": SECRET_FILES})


def find_pod_problems(
    owner: Mapping[str, Any], names: set[tuple[str, str]], sources: Mapping[str, set[str]]
) -> Iterator[str]:
    """`sources`: the config maps and secrets, and their files."""
    pod = owner["spec"]["template"]["spec"]
    if ("ServiceAccount", pod["serviceAccountName"]) not in names:
        yield f"service account {pod['serviceAccountName']} does not exist"
    wanted = owner["spec"]["selector"]["matchLabels"]
    if not wanted.items() <= owner["spec"]["template"]["metadata"]["labels"].items():
        yield "the selector does not select the pods"
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = [mount for container in pod["containers"] for mount in container["volumeMounts"]]
    yield from (f"volume {one} does not exist" for one in {mount["name"] for mount in mounts} - set(volumes))
    yield from (f"volume {one} is not used" for one in set(volumes) - {mount["name"] for mount in mounts})
    found = {
        name: one.get("configMap", {}).get("name") or one.get("secret", {}).get("secretName")
        for name, one in volumes.items()
    }
    yield from (f"{name} does not exist" for name in found.values() if name and name not in sources)
    for mount in mounts:
        source = found.get(mount["name"]) or ""
        if mount.get("subPath", "") not in {"", *sources.get(source, {mount.get("subPath")})}:
            yield f"{source} has no file {mount['subPath']}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", sorted(BASE.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_manifest_is_valid(path: Path, version: str) -> None:
    if path.name == "kustomization.yaml":  # is of kustomize: what it names is checked below
        assert set(read(path)) == {"apiVersion", "kind", "namespace", "resources", "configMapGenerator"}
    else:
        kubernetes_validate.validate(read(path), version, strict=True)


def test_a_misspelled_key_of_a_manifest_is_noticed() -> None:
    """Control."""
    wrong = read(BASE / "worker.yaml")
    wrong["spec"]["template"]["spec"]["automountServiceAcountToken"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_the_kustomization_is_complete() -> None:
    assert list(find_problems(BASE)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("kustomization.yaml", "  - worker.yaml\n", "", "worker.yaml is not in the kustomization"),
        ("kustomization.yaml", "- worker.yaml", "- works.yaml", "works.yaml does not exist"),
        ("kustomization.yaml", "- config.toml", "- settings.toml", "settings.toml does not exist"),
        ("kustomization.yaml", "name: worker-config\n    files", "name: c\n    files", "worker-config does not exist"),
        ("worker.yaml", "{name: temporary, mount", "{name: temp, mount", "volume temp does not exist"),
        ("worker.yaml", "secretName: worker-secrets", "secretName: secrets", "secrets does not exist"),
        ("worker.yaml", "subPath: credentials.toml", "subPath: netrc", "worker-secrets has no file netrc"),
        ("service-account.yaml", "name: worker", "name: other", "service account worker does not exist"),
        ("namespace.yaml", "name: space-sandbox", "name: space", "namespace space-sandbox does not exist"),
    ],
)
def test_a_reference_that_leads_nowhere_is_found(tmp_path: Path, file: str, old: str, new: str, problem: str) -> None:
    """Controls of the test above."""
    base = tmp_path / "base"
    shutil.copytree(BASE, base)
    text = (base / file).read_text()
    assert old in text
    (base / file).write_text(text.replace(old, new))
    assert problem in list(find_problems(base))


def test_the_pod_has_the_socket_its_state_and_no_more() -> None:
    pod = read(BASE / "worker.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {
            "drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_PTRACE", "CHECKPOINT_RESTORE"],
        },
    }  # fmt: skip
    assert not {"hostNetwork", "hostIPC"} & set(pod)
    assert pod["automountServiceAccountToken"] is False
    host_paths = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert host_paths == {name: mounts[name] for name in ("engine", "state", "control-groups")}, "the same path inside"
    (secret,) = (one["secret"] for one in pod["volumes"] if "secret" in one)
    assert secret["defaultMode"] == 0o400, "the worker refuses keys that others can read"
    assert {one["name"] for one in container["env"]} == {"HOME", "SANDBOX_HOME"}, "no secret"


def test_what_the_compose_file_needs_to_run() -> None:
    """Each was missing when it was first started. Docker mounts a tmpfs with `noexec`, and makes a volume that is of
    root.
    """
    found = read(COMPOSE)
    server, worker = found["services"]["temporal"], found["services"]["worker"]
    assert [options.split(":")[1].split(",")[0] for options in worker["tmpfs"]] == ["exec"]
    assert server["user"] == "0:0"
    assert set(found) <= {"services", "volumes", "secrets"}, "Docker Compose 1.29 refuses `name`"


def test_s221_workers_see_the_processes_of_guests() -> None:
    """The engine numbers them as this host does."""
    assert read(BASE / "worker.yaml")["spec"]["template"]["spec"]["hostPID"] is True
    assert read(COMPOSE)["services"]["worker"]["pid"] == "host"


def test_the_development_server_is_on_the_loopback_of_the_host() -> None:
    """It has no access control. Before Docker 28 the neighbours of a host reach a port published to 127.0.0.1."""
    services = read(COMPOSE)["services"]
    assert not any({"ports", "expose", "networks"} & set(service) for service in services.values())
    assert {service["network_mode"] for service in services.values()} == {"host"}
    assert "--ip=127.0.0.1" in services["temporal"]["command"]
    assert services["worker"]["environment"]["SANDBOX_CLUSTER_ADDRESS"] == "127.0.0.1:7233"


def test_the_compose_project_has_its_name_by_either_version() -> None:
    """Else an upgrade began with an empty volume: volumes are named by the project."""
    assert COMPOSE.with_name(".env").read_text().splitlines()[-1] == "COMPOSE_PROJECT_NAME=space-sandbox"


def test_settings_in_the_manifests_exist() -> None:
    settings = Settings.model_validate(tomllib.loads((BASE / "config.toml").read_text()))
    ours = settings.cluster
    named = {path.name for path in (ours.ca_file, ours.certificate_file, ours.key_file) if path is not None}
    assert named == SECRET_FILES - {"credentials.toml"}
    for name in read(COMPOSE)["services"]["worker"]["environment"]:
        section, _, key = name.removeprefix("SANDBOX_").lower().partition("_")
        assert name in {"HOME", "SANDBOX_HOME"} or key in type(getattr(settings, section)).model_fields, name


def test_the_compose_file_is_valid_and_complete() -> None:
    found = read(COMPOSE)
    schema = json.loads(
        files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text(encoding="utf-8")
    )
    jsonschema.validate(found, schema)
    with pytest.raises(jsonschema.ValidationError):  # control
        jsonschema.validate({**found, "service": {}}, schema)
    for name, service in found["services"].items():
        assert "privileged" not in service, name
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert set(service.get("depends_on", ())) <= set(found["services"]), name
        assert {one["source"] for one in service.get("secrets", ())} <= set(found["secrets"]), name
        for volume in service["volumes"]:
            source, _, target = volume.partition(":") if isinstance(volume, str) else ("", "", "")
            if source.startswith("/"):
                assert source == target, "the same path inside and outside"
            elif source:
                assert source in found["volumes"], name
            else:
                assert volume["source"] == volume["target"], "the same path inside and outside"
