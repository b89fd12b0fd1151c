"""docs/how-to/deployment.md: its application and its configuration of gunicorn are served, and end by SIGTERM."""

from __future__ import annotations

import re
from pathlib import Path

from served_by_gunicorn import ROOT, Served

from aiokprod.testing import MockCluster

PAGE = (ROOT / "docs" / "how-to" / "deployment.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


def test_the_application_of_the_page_is_served_by_the_workers_of_its_configuration(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (workers,) = re.findall(r"^workers = (\d+)$", FILES["gunicorn.conf.py"], re.MULTILINE)
    with MockCluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=1)
        served = Served(tmp_path, "app:app", {"AIOKPROD_BOOTSTRAP_SERVERS": cluster.bootstrap_servers})
        try:
            served.until_logged("Application startup complete.", int(workers))
            assert served.ask("POST", "/orders", status=201) == '{"offset":0}'
            assert [record.value for record in cluster.records("orders")] == [b"an order"]
            served.end()
            assert served.log.read_text().count("Application shutdown complete.") == int(workers)
        finally:
            served.kill()
            print(served.log.read_text())
