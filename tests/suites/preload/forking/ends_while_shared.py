"""A process ends while its child has the connection and its other threads use it. The process carries
the child's bytes to the end, and its threads see neither an error nor an end meanwhile."""

STATUS = 7


def for_ever(call):
    """Repeats a call in a thread. If the call fails, the process ends with a wrong status."""

    def run():
        while True:
            try:
                call()
            except BlockingIOError:
                time.sleep(0.001)
            except OSError as error:
                print("a call failed:", error, flush=True)
                os._exit(9)

    threading.Thread(target=run, daemon=True).start()


def answer(client, go):
    os.read(go, 1)
    client.sendall(b"of the child")


def run(leave):
    go, begin = os.pipe()
    reports, report = os.pipe()

    def dial(client):
        os.close(begin)
        forked(answer, client, go)
        for_ever(lambda: client.recv(1, socket.MSG_DONTWAIT))
        for_ever(lambda: select.select([client], [], [], 0.001))
        for_ever(lambda: os.fstat(client.fileno()))
        os.write(report, b".")
        leave(STATUS)

    server, client = connected(dial)
    assert os.read(reports, 1) == b"."
    # The process is ending, and its threads repeat their calls.
    time.sleep(0.3)
    os.close(begin)
    assert receive(server, 12) == b"of the child"
    assert server.recv(1) == b""
    _, status = os.waitpid(client, 0)
    assert status == STATUS << 8, (leave, status)
    for fd in go, reports, report:
        os.close(fd)
    server.close()


for leave in (C.exit, os._exit):
    run(leave)
