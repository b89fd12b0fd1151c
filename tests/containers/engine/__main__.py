"""A Docker engine and an image of Apache Kafka for the tests in tests/containers, with nothing but Python's own library.

    python tests/containers/engine up               # an engine answers: the one that is here, or one that is started
    python tests/containers/engine image [VERSION]  # prints the tag of an image of Kafka, which is built if there is none
    python tests/containers/engine down             # stops the engine that `up` has started, and removes what it stored

Each can be called again and again. Status 77: this machine cannot have it, and the reason is the last line of standard
error. Status 1: it could, and something failed.
"""

from __future__ import annotations

import argparse
import sys

import docker_engine
import kafka_image
from this_machine import NotHere

CANNOT_HAVE_IT = 77  # as a test that was left out, in automake and meson


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python tests/containers/engine", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="let a Docker engine answer")
    image = commands.add_parser("image", help="print the tag of an image of Apache Kafka")
    image.add_argument(
        "version", nargs="?", help="of Kafka (default: the one of aiokprod/testing/kafka_cluster/pom.xml)"
    )
    commands.add_parser("down", help="stop the engine that `up` has started")
    asked = parser.parse_args(arguments)
    try:
        if asked.command == "up":
            print(docker_engine.up())
        elif asked.command == "image":
            print(kafka_image.made(asked.version))
        else:
            print(docker_engine.down())
    except NotHere as missing:
        if missing.log:
            print(missing.log, file=sys.stderr)
        print(missing, file=sys.stderr)
        return CANNOT_HAVE_IT
    except (OSError, RuntimeError, ValueError) as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
