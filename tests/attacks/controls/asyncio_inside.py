# task: add
import asyncio


async def slow(a, b):
    await asyncio.sleep(0)
    return a + b


def add(a, b):
    return asyncio.run(slow(a, b))
