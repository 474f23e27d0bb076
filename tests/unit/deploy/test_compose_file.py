"""docker-compose.yml by its text: what a reader relies on, and what another file must agree with."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.compose.program import find_compose
from deploy.compose.trial import bases
from deploy.local import places
from deploy.local.errors import StackError
from tests.support.compose import FILE, HEALTHCHECK, Mount, mounts, port_of, read_file

COMPOSE = read_file()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"topics", "token", "setup", "smoke"}
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("lmerge/")]
CORE = {name for name, service in SERVICES.items() if "profiles" not in service}
OBSERVABILITY = {"prometheus", "grafana"}
EXAMPLE = str(places.CHECKOUT / ".env.example")
REPLICAS = [name for name in SERVICES if re.fullmatch(r"r\d", name)]


@pytest.fixture(scope="session")
def compose() -> Path:
    try:
        return find_compose()
    except StackError as error:
        pytest.skip(str(error))


def config(compose: Path, file: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Let Compose read a file, in an environment without any setting of this machine."""
    command = [str(compose), "--file", str(file), "--project-directory", str(places.CHECKOUT)]
    return subprocess.run(
        [*command, *options, "config", "--quiet"], capture_output=True, text=True, check=False, env={}, timeout=60
    )


@pytest.mark.parametrize("profiles", [(), ("--profile", "core"), ("--profile", "*")])
def test_compose_accepts_the_file(compose: Path, profiles: tuple[str, ...]) -> None:
    done = config(compose, FILE, "--env-file", "/dev/null", *profiles)
    assert (done.returncode, done.stderr) == (0, "")


def test_compose_takes_the_example_of_settings(compose: Path) -> None:
    done = config(compose, FILE, "--env-file", EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"), [("restart: unless-stopped", "restrat: unless-stopped"), ("      kafka: {", "      kafak: {")]
)
def test_compose_refuses_a_file_with_a_mistake(compose: Path, tmp_path: Path, right: str, wrong: str) -> None:
    text = FILE.read_text()
    assert right in text
    (tmp_path / "docker-compose.yml").write_text(text.replace(right, wrong, 1))
    assert config(compose, tmp_path / "docker-compose.yml").returncode != 0


def started(compose: Path, *options: str) -> set[str]:
    """Ask Compose which services it would start, in an environment without any setting of this machine."""
    command = [str(compose), "--file", str(FILE), *options, "config", "--services"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={}, timeout=60)
    return set(done.stdout.split())


def test_compose_and_we_read_the_same_services(compose: Path) -> None:
    assert started(compose, "--env-file", "/dev/null", "--profile", "*") == set(SERVICES)


@pytest.mark.parametrize(
    ("settings", "profiles", "beside"),
    [
        ("/dev/null", (), set()),
        ("/dev/null", ("--profile", "observability"), OBSERVABILITY),
        (EXAMPLE, (), OBSERVABILITY),
        (EXAMPLE, ("--profile", "core"), set()),
    ],
)
def test_a_profile_starts_what_the_page_says(
    compose: Path, settings: str, profiles: tuple[str, ...], beside: set[str]
) -> None:
    """The core alone by `--profile core`, whatever .env says."""
    assert started(compose, "--env-file", settings, *profiles) == CORE | beside


def test_make_up_starts_prometheus_and_grafana_whatever_the_settings_say(compose: Path) -> None:
    words = re.search(r"\|\| echo unknown\) docker compose (.*) up ", (places.CHECKOUT / "Makefile").read_text())
    assert words
    assert started(compose, "--env-file", "/dev/null", *words[1].split()) == CORE | OBSERVABILITY


def test_without_a_profile_the_core_is_started_and_nothing_else() -> None:
    assert {
        *("kafka", "topics", "token", "setup", "workload", "heartbeat-1", "heartbeat-2", "merge-1", "merge-2"),
        *("r1", "r2", "r3"),
    } == CORE
    assert {name for name, each in SERVICES.items() if each.get("profiles") == ["observability"]} == OBSERVABILITY


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_limited_and_heard_on_this_machine_alone(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"])
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["logging"]["options"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    # The official image of Kafka writes its settings into its own directories.
    assert service.get("read_only", False) == (name != "kafka")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_restarted_and_checked_unless_it_ends_by_itself(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped")
    has_check = "test" in service.get("healthcheck", {})
    assert has_check == (name not in ONE_SHOT)
    if has_check and name in OURS:
        address = [] if port_of(service) is None else [f"http://127.0.0.1:{port_of(service)}/readyz"]
        assert service["healthcheck"]["test"] == ["CMD", "python", "-IS", HEALTHCHECK, *address]


def test_what_ends_by_itself_is_waited_for() -> None:
    """`up --wait` takes the end of a service for a failure, unless another one wants it to have ended."""
    waited_for = {
        other
        for service in SERVICES.values()
        for other, wanted in service.get("depends_on", {}).items()
        if wanted["condition"] == "service_completed_successfully"
    }
    assert waited_for == ONE_SHOT - {"smoke"}


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_of_ours_is_never_pulled(name: str) -> None:
    """What has its name in a registry is somebody else's. Beside `build`, `never` means: built if it is not there."""
    assert SERVICES[name].get("pull_policy") == ("never" if name in OURS else None)


def needed_by(name: str) -> set[str]:
    """Give a service and all that it depends on: what is started, and built, by its name."""
    return {name}.union(*map(needed_by, SERVICES[name].get("depends_on", ())))


@pytest.mark.parametrize(
    "started",
    [CORE, needed_by("r1"), needed_by("r4"), needed_by("merge-1"), needed_by("heartbeat-1"), needed_by("workload")],
    ids=["all", "r1", "r4", "merge-1", "heartbeat-1", "workload"],
)
def test_whatever_is_started_first_builds_its_images_once(started: set[str]) -> None:
    built = [SERVICES[name]["image"] for name in sorted(started) if "build" in SERVICES[name]]
    assert sorted(built) == sorted({SERVICES[name]["image"] for name in started if name in OURS})


def test_an_image_of_ours_is_named_after_what_is_built() -> None:
    builders = {service["image"]: service["build"]["target"] for service in SERVICES.values() if "build" in service}
    assert builders == {SERVICES[name]["image"]: SERVICES[name]["image"].split("/")[1].split(":")[0] for name in OURS}


def test_replicas_differ_in_name_plan_and_volume_alone() -> None:
    def rest(name: str) -> dict[str, Any]:
        return {
            key: value
            for key, value in SERVICES[name].items()
            if key not in {"build", "command", "volumes", "profiles"}
        }

    plans = {}
    for name in REPLICAS:
        assert rest(name) == rest("r1")
        assert mounts(SERVICES[name])[0] == Mount(name, "/var/lib/lmerge")
        assert mounts(SERVICES[name])[1:] == mounts(SERVICES["r1"])[1:]
        *start, replica, _, plans[name] = SERVICES[name]["command"]
        assert (start, replica) == (["python", "-m", "replicas", "--replica"], name)
    assert plans == {"r1": "direct", "r2": "panes", "r3": "direct", "r4": "panes"}


def test_whatever_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for mount in mounts(service):
            if mount.source.startswith("./"):
                assert (places.CHECKOUT / mount.source).is_dir(), mount
                assert mount.options == "ro"
            else:
                assert mount.source in COMPOSE["volumes"]


def test_grafana_begins_with_the_overview_and_fetches_nothing() -> None:
    settings = SERVICES["grafana"]["environment"]
    home = Path(settings["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    (source,) = [mount.source for mount in mounts(SERVICES["grafana"]) if mount.target == str(home.parent)]
    assert (places.CHECKOUT / source / home.name).is_file()
    assert settings["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"


def test_alerts_know_how_long_the_broker_keeps_records() -> None:
    """By size: an estimate, in the order of what 200 rows a second write into a partition."""
    limits = (places.CHECKOUT / "deploy/prometheus/rules/limits.yml").read_text()
    found = re.search(r"limit_retention_seconds\n +expr: vector\((\d+)\)", limits)
    assert found
    kept = SERVICES["kafka"]["environment"]["KAFKA_LOG_RETENTION_BYTES"]
    assert 10_000 < kept / int(found[1]) < 15_000  # bytes a second


def test_there_is_no_secret_in_the_file() -> None:
    for line in FILE.read_text().splitlines():
        if re.search(r"(TOKEN|PASSWORD|SECRET)\w*:", line):
            assert line.split(": ")[1] in {"/run/lmerge/token", "${LMERGE_ADMIN_TOKEN:-}"}


def test_every_setting_of_the_file_is_in_the_example_with_the_same_value() -> None:
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", FILE.read_text()))
    example = Path(EXAMPLE).read_text()
    shown = dict(re.findall(r"^#?([A-Z_0-9]+)=(.*)$", example, re.MULTILINE))
    assert shown.pop("COMPOSE_PROFILES") == "observability"
    assert shown == used


def test_prometheus_asks_every_process_where_it_listens() -> None:
    directory = places.CHECKOUT / "deploy/prometheus"
    asked = {
        target
        for file in (directory / "targets").glob("*.yml")
        for entry in yaml.safe_load(file.read_text())
        for target in entry["targets"]
    }
    jobs = yaml.safe_load((directory / "prometheus.yml").read_text())["scrape_configs"]
    looked_for = [found for job in jobs for found in job.get("dns_sd_configs", ())]
    asked |= {f"{name}:{found['port']}" for found in looked_for for name in found["names"]}
    assert asked == {f"{name}:{port_of(SERVICES[name])}" for name in OURS if port_of(SERVICES[name])}


def test_the_trial_knows_the_images_that_are_pulled() -> None:
    pulled = {service["image"] for service in SERVICES.values() if not service["image"].startswith("lmerge/")}
    made = bases.names(FILE.read_text())
    assert pulled - set(made.values()) == {SERVICES["grafana"]["image"]}
    assert made["python"] == SERVICES["r1"]["build"]["args"]["PYTHON_IMAGE"]
