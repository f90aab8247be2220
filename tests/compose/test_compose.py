"""The compose file, as Compose itself reads it: complete, pinned, bounded, on this machine only."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.collectors import arguments, binary
from tests.support.composed import SECRETS, compose, model
from tests.support.monitoring import ALERTS, ROOT

PROFILES = ["default", "scale"]
WITHOUT_A_SHELL = {"collector": "collector-health", "balancer": "gateway-health"}
WITHOUT_A_SHELL.update({"sampler-1": "gateway-health", "sampler-2": "gateway-health"})
"""Services whose image cannot ask itself how it is, and what asks in their place."""


@pytest.mark.parametrize("profile", [None, *PROFILES])
def test_compose_takes_it(profile: str | None) -> None:
    """The file is valid without a profile and with each, and Compose has nothing to say."""
    assert (0, "", "") == compose("config", "-q", profile=profile)


@pytest.mark.parametrize("fault", ["nonsense: true", "depends_on: [nobody]", "mem_limit: much"])
def test_compose_judges(tmp_path: Path, fault: str) -> None:
    """Compose itself is what is asked: it refuses an unknown key, an undefined service, a wrong value."""
    (tmp_path / "more.yml").write_text(f"services: {{phoenix: {{{fault}}}}}")
    assert 0 != compose("config", "-q", more=(tmp_path / "more.yml",))[0]


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_there_is_no_default_password(missing: str) -> None:
    """Without a password of one's own nothing starts, and it says what to do."""
    given = {name: value for name, value in SECRETS.items() if name != missing}
    status, _, err = compose("config", "-q", given=given)
    assert status != 0
    assert missing in err
    assert err.rstrip().endswith(": copy .env.example to .env and fill it in")


def test_the_profiles_differ_in_the_collectors() -> None:
    """One collector by default; a balancer and two samplers in its place."""
    common = {"alertmanager", "grafana", "phoenix", "postgres", "prometheus"}
    assert common | {"collector", "collector-health"} == set(model("default"))
    assert common | {"balancer", "sampler-1", "sampler-2", "gateway-health"} == set(model("scale"))


@pytest.mark.parametrize("profile", PROFILES)
def test_images_are_pinned(profile: str) -> None:
    """Each image has a whole version as its tag, and the collector's is the manifest's."""
    images = {name: service["image"] for name, service in model(profile).items()}
    assert {} == {name: image for name, image in images.items() if not re.search(r":\D*\d+\.\d+(\.\d+)?$", image)}
    release = yaml.safe_load((ROOT / "collector" / "manifest.yaml").read_text())["dist"]["version"]
    collectors = {image for name, image in images.items() if name in WITHOUT_A_SHELL}
    assert {f"otel/opentelemetry-collector-contrib:{release}"} == collectors


@pytest.mark.parametrize("profile", PROFILES)
def test_services_are_bounded_and_asked(profile: str) -> None:
    """Each service has limits of memory and processors, starts again, and is asked how it is."""
    made = model(profile)
    for name, service in made.items():
        limits = service["deploy"]["resources"]["limits"]
        assert int(limits["memory"]) > 0, name
        assert float(limits["cpus"]) > 0, name
        assert "unless-stopped" == service["restart"], name
        asked = made[WITHOUT_A_SHELL.get(name, name)]["healthcheck"]
        assert asked["test"], name
        if name in WITHOUT_A_SHELL:
            assert name in " ".join(asked["test"])


@pytest.mark.parametrize("profile", PROFILES)
def test_it_listens_on_this_machine_only(profile: str) -> None:
    """Every published port is the loopback interface's, and none is published twice."""
    ports = [port for service in model(profile).values() for port in service.get("ports", ())]
    assert {"127.0.0.1"} == {port["host_ip"] for port in ports}
    published = [port["published"] for port in ports]
    assert sorted(set(published)) == sorted(published)
    assert {"4317", "4318", "13133", "6006", "9090", "9093", "3000"} == set(published)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_mounted_exists(profile: str) -> None:
    """Each file or folder is in the repository and mounted to be read; what is written goes to named volumes."""
    mounts = [mount for service in model(profile).values() for mount in service.get("volumes", ())]
    bound = [mount for mount in mounts if mount["type"] == "bind"]
    assert len(bound) >= 8
    for mount in bound:
        assert Path(mount["source"]).exists(), mount
        assert Path(mount["source"]).is_relative_to(ROOT), mount
        assert mount["read_only"], mount
    assert {"bind", "volume"} == {mount["type"] for mount in mounts}


@pytest.mark.parametrize("profile", PROFILES)
def test_prometheus_reads_the_collectors_that_run(profile: str) -> None:
    """The targets of a profile are services of that profile, on the ports that they are told to listen at."""
    made = model(profile)
    targets = ALERTS / "targets" / profile
    (group,) = yaml.safe_load((targets / "collectors.yaml").read_text())
    assert {target.partition(":")[0] for target in group["targets"]} <= set(made)
    assert {"8888", "8889"} == {target.partition(":")[2] for target in group["targets"]}
    assert [{"targets": ["alertmanager:9093"]}] == yaml.safe_load((targets / "alertmanagers.yaml").read_text())
    sources = [mount["source"] for mount in made["prometheus"]["volumes"] if mount["type"] == "bind"]
    assert str(targets) in sources


@pytest.mark.parametrize("profile", PROFILES)
def test_the_collectors_take_their_configuration(profile: str) -> None:
    """With the environment and the files that Compose gives it, the collector finds nothing wrong."""
    for name, service in model(profile).items():
        if name not in WITHOUT_A_SHELL:
            continue
        files = [argument.removeprefix("--config=/etc/agui-otel/") for argument in service["command"]]
        ran = subprocess.run(
            [binary(), "validate", *arguments(tuple(files))],
            env={**service["environment"], "AGUI_COLLECTOR_STORAGE": "/tmp"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (0, "") == (ran.returncode, ran.stderr), name


def test_the_example_names_every_variable() -> None:
    """Each variable of the compose file is in .env.example, and the passwords are left open there."""
    named = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    example = re.findall(r"^#?(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert named == {name for name, _ in example}
    assert set(SECRETS) == {name for name, value in example if name in SECRETS and value == ""}


def test_no_environment_file_is_committed() -> None:
    """A .env with passwords is nobody's but its owner's."""
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
