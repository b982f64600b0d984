"""The shipped schemas are valid, and every document of the command obeys them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import fake_lab
import jsonschema
import monitor_fakes
import pytest
from conftest import REAL, command
from referencing import Registry, Resource
from ticketlock import bench
from ticketlock.monitor.build import build
from ticketlock.monitor.document import dumps, to_json
from ticketlock.monitor.merge import merge

NAMES = ("info-1", "bench-1", "snapshot-1")


def schema(name: str) -> dict[str, Any]:
    text = resources.files("ticketlock").joinpath("schemas", f"{name}.schema.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def validator(name: str) -> jsonschema.Draft202012Validator:
    registry = Registry().with_resources((schema(one)["$id"], Resource.from_contents(schema(one))) for one in NAMES)
    return jsonschema.Draft202012Validator(schema(name), registry=registry)


def strict(text: str) -> Any:
    """Parse JSON that has no NaN and no infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("preset", ["uncontended", "semaphore", "fairness", "phantom", "oversubscribed"])
def test_scripted_documents_obey(scripted: Any, preset: str) -> None:
    results = bench.run(preset, engine=scripted(), rounds=2, seed=1)
    validator("bench-1").validate(strict(results.dumps()))


@pytest.mark.parametrize("preset", ["uncontended", "semaphore", "fairness", "phantom", "oversubscribed"])
def test_empty_partial_and_invalid_documents_obey(scripted: Any, preset: str) -> None:
    with pytest.raises(bench.Interrupted) as stopped:
        bench.run(preset, engine=scripted(lambda spec, n: KeyboardInterrupt()), rounds=2, seed=1)
    validator("bench-1").validate(strict(stopped.value.results.dumps()))
    refusing = scripted(lambda spec, n: RuntimeError("no"))
    validator("bench-1").validate(strict(bench.run(preset, engine=refusing, rounds=2, seed=1).dumps()))
    bare = {"status": "ok", "seconds": 1.0, "acquisitions": [1, 2]}
    validator("bench-1").validate(strict(bench.run(preset, engine=scripted(lambda spec, n: bare), rounds=2).dumps()))


def test_the_schema_refuses_what_is_wrong(scripted: Any) -> None:
    document = bench.run("semaphore", engine=scripted(), rounds=2, seed=1, locks="auto").to_json()
    good = json.loads(json.dumps(document))
    validator("bench-1").validate(good)
    for spoil in (
        lambda cell: cell.pop("why"),
        lambda cell: cell.update(status="fine"),
        lambda cell: cell.update(unheard_of=1),
        lambda cell: cell.update(jain="1"),
        lambda cell: cell["throughput_per_s"].update(median=-1),
        lambda cell: cell["params"].pop("cap"),
    ):
        bad = json.loads(json.dumps(document))
        spoil(bad["cells"][0])
        assert not validator("bench-1").is_valid(bad)


def test_scripted_info_obeys() -> None:
    validator("info-1").validate(strict(command("info", "--json").stdout.decode()))
    assert not validator("info-1").is_valid({"schema": "ticketlock.info/1", **fake_lab.machine()}), "python is missing"


def test_info_of_this_machine_obeys() -> None:
    validator("info-1").validate(strict(command("info", "--json", program=REAL).stdout.decode()))


@pytest.mark.parametrize("fake", ["empty", "few", "many", "hostile", "deadlock", "abandoned"])
def test_snapshots_obey(fake: str) -> None:
    reading = getattr(monitor_fakes, fake)
    total, interval = build(reading(tick=2), None), build(reading(tick=3), reading(tick=2), lambda native_id: False)
    for snapshot in (total, interval, merge(total, interval)):
        validator("snapshot-1").validate(strict(dumps(snapshot)))


@pytest.mark.parametrize("seed", range(20))
def test_snapshots_of_rubbish_obey(seed: int) -> None:
    earlier, later = monitor_fakes.rubbish(seed), monitor_fakes.rubbish(seed + 1000)
    later["process"] = earlier["process"]
    for snapshot in (build(later, None), build(later, earlier)):
        validator("snapshot-1").validate(strict(dumps(snapshot)))


def test_the_schema_of_snapshots_refuses_what_is_wrong() -> None:
    document = to_json(build(monitor_fakes.few(3), monitor_fakes.few(2)))
    validator("snapshot-1").validate(json.loads(json.dumps(document)))
    for spoil in (
        lambda document: document.pop("cycles"),
        lambda document: document.update(schema="ticketlock.snapshot/2"),
        lambda document: document["dropped"].update(locks=0),
        lambda document: document["locks"][0].pop("site"),
        lambda document: document["locks"][0].update(contended=None),
        lambda document: document["locks"][0].update(wait_share=-0.5),
        lambda document: document["locks"][0]["wait_ns"].update(p50="1ms"),
        lambda document: document["threads"][0].update(state="asleep"),
    ):
        bad = json.loads(json.dumps(document))
        spoil(bad)
        assert not validator("snapshot-1").is_valid(bad)
