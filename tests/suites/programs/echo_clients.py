"""Opens fifty connections at once, and compares every answer and the end of each stream."""
import asyncio
import random
import sys


async def exchange(number, turns):
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    generator = random.Random(number)
    for turn in range(turns):
        message = generator.randbytes(generator.choice([1, 100, 5_000, 100_000]))
        writer.write(message)
        answer = await reader.readexactly(len(message))
        assert answer == message, f"connection {number}, turn {turn}"
    last = generator.randbytes(300_000)
    writer.write(last)
    writer.write_eof()
    answer = await reader.read(-1)
    assert answer == last, f"connection {number}: {len(answer)} bytes at the end"
    writer.close()
    await writer.wait_closed()


async def main():
    await asyncio.gather(*(exchange(number, int(sys.argv[3])) for number in range(50)))
    print("done")


asyncio.run(main())
