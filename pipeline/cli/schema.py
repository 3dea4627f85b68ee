"""``turnstream schema``: the JSON Schema of messages in their wire form."""

from __future__ import annotations

import argparse
import json

from turnstream.cli import EXIT_COMPLETE

__all__ = ["schema"]


def schema(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream schema --help``.

    Returns:
        The exit status.
    """
    from turnstream.messages.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return EXIT_COMPLETE
