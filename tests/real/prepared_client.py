"""A process that writes a transaction, prepares it if it is to, and waits to be killed; run by test_prepared_on_real_brokers.

python prepared_client.py '{"servers": ..., "topic": ..., "id": ..., "group": ..., "prepares": true}'
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiokprod import Producer


async def main(job: dict[str, Any]) -> None:
    producer = await Producer(job["servers"], transactional_id=job["id"], **job.get("options", {})).start()
    producer.begin_transaction()
    for partition in range(3):
        for index in range(5):
            producer.send(job["topic"], b"%d" % index, partition=partition)
    await producer.send_offsets_to_transaction({(job["topic"], 0): 7}, job["group"])
    if job["prepares"]:
        print((await producer.prepare_transaction()).to_json(), flush=True)
    else:
        await producer.flush()
        print("written", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
