"""An event loop with its own descriptors, timers and children."""

import asyncio


async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def exchange(port, size):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = os.urandom(size)
    writer.write(data)
    assert await reader.readexactly(size) == data
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    child = await asyncio.create_subprocess_exec("true")
    await asyncio.gather(*(exchange(port, 1000 * n + 1) for n in range(50)))
    assert await child.wait() == 0


asyncio.run(main())
