"""Fifty connections at once, which compare every answer and the end of the stream."""
import asyncio
import random
import sys


async def talk(number, turns):
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    chance = random.Random(number)
    for turn in range(turns):
        message = chance.randbytes(chance.choice([1, 100, 5_000, 100_000]))
        writer.write(message)
        answer = await reader.readexactly(len(message))
        assert answer == message, f"connection {number}, turn {turn}"
    last = chance.randbytes(300_000)
    writer.write(last)
    writer.write_eof()
    answer = await reader.read(-1)
    assert answer == last, f"connection {number}: {len(answer)} bytes at the end"
    writer.close()
    await writer.wait_closed()


async def main():
    await asyncio.gather(*(talk(number, int(sys.argv[3])) for number in range(50)))
    print("done")


asyncio.run(main())
