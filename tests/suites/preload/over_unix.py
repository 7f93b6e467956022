import os
import select
import socket
import subprocess
import threading

# Both ends, over a protocol whose rule permits nothing else.
TOTAL = 3_000_000
BYTES = bytes(at * 7 % 251 for at in range(TOTAL))


def serve(listener, rounds):
    for _ in range(rounds):
        client, _ = listener.accept()
        with client:
            while piece := client.recv(65536):
                client.sendall(piece)


for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        server = threading.Thread(target=serve, args=(listener, 3))
        server.start()
        # A blocking client.
        with socket.create_connection(listener.getsockname()[:2]) as client:
            assert client.getpeername() == listener.getsockname()
            back = bytearray()
            sender = threading.Thread(target=client.sendall, args=(BYTES,))
            sender.start()
            while len(back) < TOTAL:
                back += client.recv(65536)
            sender.join()
            assert back == BYTES
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        # A client that never blocks.
        with socket.socket(family) as client:
            client.setblocking(False)
            client.connect_ex(listener.getsockname()[:2])
            sent, back = 0, bytearray()
            while len(back) < TOTAL:
                wants = [client] if sent < TOTAL else []
                readable, writable, _ = select.select([client], wants, [], 60)
                assert readable or writable, (sent, len(back))
                if writable:
                    try:
                        sent += client.send(BYTES[sent : sent + 100_000])
                    except BlockingIOError:
                        pass
                if readable:
                    try:
                        back += client.recv(65536)
                    except BlockingIOError:
                        pass
            assert back == BYTES
        # A client that closes at once.
        socket.create_connection(listener.getsockname()[:2]).close()
        server.join()
    # Without a listener the connect is refused, because no rule permits TCP.
    with socket.socket(family) as client:
        assert client.connect_ex((host, 1)) != 0

# A change of the network is reported to the protocol.
subprocess.run(["ip", "address", "add", "192.0.2.77/32", "dev", "lo"], check=True, env={
    name: value for name, value in os.environ.items() if name != "LD_PRELOAD"
})
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    # The event thread has handled earlier events when it handles this one.
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"x")
        server, _ = listener.accept()
        assert server.recv(1) == b"x"
        server.sendall(b"y")
        poller = select.poll()
        poller.register(client, select.POLLIN)
        assert poller.poll(60_000)
print("done")
