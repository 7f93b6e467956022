"""Echoes the received bytes until the end of the stream."""
import asyncio
import sys


async def echo(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
    writer.close()


async def main():
    server = await asyncio.start_server(echo, sys.argv[1], int(sys.argv[2]), backlog=256)
    async with server:
        await server.serve_forever()


asyncio.run(main())
