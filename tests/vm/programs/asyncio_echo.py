"""An asyncio echo server, and clients that check the echoed bytes."""
import asyncio
import random
import sys


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(address, port):
    server = await asyncio.start_server(echo, address, port)
    async with server:
        await server.serve_forever()


async def visit(address, port, number, rounds, length):
    reader, writer = await asyncio.open_connection(address, port)
    noise = random.Random(number)
    for _ in range(rounds):
        sent = noise.randbytes(noise.randrange(1, length))
        writer.write(sent)
        got, _ = await asyncio.gather(reader.readexactly(len(sent)), writer.drain())
        assert got == sent, f"client {number}: other bytes were received"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "serve":
        await serve(address, port)
    clients, rounds, length = map(int, sys.argv[4:7])
    await asyncio.gather(*(visit(address, port, it, rounds, length) for it in range(clients)))
    print("SAME", flush=True)


asyncio.run(main())
