"""What importing costs and what is public (DESIGN.md §1)."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from types import ModuleType

import pytest

PACKAGES = [
    "turnstream",
    "turnstream.messages",
    "turnstream.operators",
    "turnstream.sinks",
    "turnstream.sources",
    "turnstream.testing",
]
MODULES_WITH_ALL = [
    *(
        f"turnstream.messages.{name}"
        for name in ["codec", "errors", "events", "factories", "ids", "jsonvalue", "names", "texts", "types"]
    ),
    *(
        f"turnstream.operators.{name}"
        for name in [
            "accumulate",
            "answer",
            "batch",
            "blocks",
            "bridge",
            "decode",
            "events",
            "failures",
            "ndjson",
            "outcomes",
            "settle",
            "sse",
            "stage",
        ]
    ),
    *(f"turnstream.sources.{name}" for name in ["base", "files", "memory", "session"]),
]


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    # Coverage, if it runs here, would load its own modules there.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["turnstream", "turnstream.messages", "turnstream.operators"])
def test_importing_loads_neither_network_nor_rx(package: str) -> None:
    loaded = loaded_after(f"import {package}")
    assert package in loaded
    for heavy in ("aiohttp", "reactivex", "asyncio", "socket"):
        assert heavy not in loaded, f"{package} imports {heavy}"


def test_messages_load_nothing_of_the_layers_above() -> None:
    loaded = loaded_after("import turnstream.messages")
    ours = {name for name in loaded if name.startswith("turnstream.")}
    assert {name for name in ours if not name.startswith("turnstream.messages")} == set()


def test_composing_stages_and_running_them_needs_no_rx() -> None:
    loaded = loaded_after(
        "from turnstream.operators import *\n"
        "chain = decode() | parse_events() | accumulate() | settle() | coalesce()\n"
        "run_stages([b'data: {}\\n\\n'], chain)"
    )
    assert "reactivex" not in loaded


@pytest.mark.parametrize("name", [*PACKAGES, *MODULES_WITH_ALL])
def test_all_names_exist_and_are_listed_once(name: str) -> None:
    module = importlib.import_module(name)
    public = module.__all__
    assert len(set(public)) == len(public)
    for entry in public:
        assert getattr(module, entry) is not None


@pytest.mark.parametrize("name", PACKAGES)
def test_all_matches_what_a_package_offers(name: str) -> None:
    module = importlib.import_module(name)
    if hasattr(module, "__getattr__"):  # a lazy face (PEP 562): that its names exist is tested above
        with pytest.raises(AttributeError):
            module.no_such_name  # noqa: B018
        return
    imported = {
        entry
        for entry, value in vars(module).items()
        if not entry.startswith("_") and not isinstance(value, ModuleType) and entry != "annotations"
    }
    assert imported == set(module.__all__)


@pytest.mark.parametrize("name", MODULES_WITH_ALL)
def test_all_names_every_public_class_and_function_of_a_module(name: str) -> None:
    module = importlib.import_module(name)
    own = {
        entry
        for entry, value in vars(module).items()
        if not entry.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }
    assert own <= set(module.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_everything_public_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for entry in module.__all__:
        value = getattr(module, entry)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{entry}"
