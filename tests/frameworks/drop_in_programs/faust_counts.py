"""An application of Faust: an agent counts words in a table, whose changelog the producer writes.

Run as `python faust_counts.py SERVERS ID FOLDER`; it knows nothing of aiokprod.
"""

import asyncio
import json
import logging
import sys

import faust

SERVERS, ID, FOLDER = sys.argv[1:]
WORDS = ["a", "b", "a", "c", "a"]
logging.disable(logging.WARNING)
app = faust.App(
    ID,
    broker=f"kafka://{SERVERS}",
    datadir=FOLDER,
    store="memory://",
    topic_replication_factor=1,
    topic_partitions=1,
    web_enabled=False,
    producer_acks=-1,
    consumer_auto_offset_reset="earliest",
)
words = app.topic(f"{ID}-words", partitions=1, value_type=str)
counts = app.Table("counts", default=int, partitions=1)


is_done = asyncio.Event()


@app.agent(words)
async def count(stream: faust.Stream) -> None:
    async for word in stream:
        counts[word] += 1
        if sum(counts.values()) == len(WORDS):
            is_done.set()


async def main() -> None:
    await app.start()
    for word in WORDS:
        await words.send(key=word, value=word)
    await is_done.wait()
    told = {"producer": type(app.producer._producer).__module__, "counts": dict(counts.items())}
    await app.stop()
    print(json.dumps(told))


app.finalize()
asyncio.run(asyncio.wait_for(main(), 100))
