"""A child sends all of its bytes and ends before the peer has sent any: no process waits for the
peer."""


def send_all(client):
    client.sendall(b"all")
    client.shutdown(socket.SHUT_WR)


def send_all_and_read(client, result):
    send_all(client)
    os.write(result, client.recv(100) + client.recv(1) + b".")


# In the functions below, `result` is the end of a pipe for the bytes that a child receives.


def child_exits_first(client, result):
    ended(forked(send_all, client))


def closes_before_its_child_sends(client, result):
    child = forked(lambda: (time.sleep(0.1), send_all(client)))
    client.close()
    ended(child)


def child_continues_to_read(client, result):
    forked(send_all_and_read, client, result)


def send_until_error(server):
    """Sends to a peer that has ended, until an error is reported."""
    try:
        while True:
            server.sendall(b"?")
            time.sleep(0.01)
    except (ConnectionResetError, BrokenPipeError):
        pass


def silent(server):
    pass


def answer(server):
    time.sleep(0.1)
    server.sendall(b"answer")
    server.shutdown(socket.SHUT_WR)


def run(behaviour, leave, react, wanted):
    results, result = os.pipe()
    permission, permit = os.pipe()

    def dial(client):
        os.close(results)
        behaviour(client, result)
        os.read(permission, 1)
        leave(0)

    server, client = connected(dial)
    os.close(result)
    assert receive(server, 3) == b"all"
    assert server.recv(1) == b""
    # The process ends after this byte.
    os.write(permit, b".")
    react(server)
    ended_soon(client)
    with open(results, "rb") as received:
        assert received.read() == wanted
    server.close()
    os.close(permission)
    os.close(permit)


def send_too_much(client, result, leave):
    """Sends more bytes than the peer has received when the process ends."""
    client.setblocking(False)
    sent = 0
    try:
        while True:
            sent += client.send(bytes(65536))
    except BlockingIOError:
        os.write(result, b"%d" % sent)
        leave(0)


def run_with_unsent_bytes(leave):
    results, result = os.pipe()
    server, client = connected(lambda sock: send_too_much(sock, result, leave))
    sent = int(os.read(results, 20))
    # The client is ending.
    time.sleep(0.1)
    assert receive(server, sent) == bytes(sent)
    assert server.recv(1) == b""
    ended_soon(client)


EXIT_GROUP = 231
exit_by_number = lambda status: C.syscall(EXIT_GROUP, status)

for leave in (os._exit, C.exit, C.quick_exit, exit_by_number):
    run_with_unsent_bytes(leave)
    for behaviour in (child_exits_first, closes_before_its_child_sends):
        run(behaviour, leave, silent, b"")
        run(behaviour, leave, send_until_error, b"")
    run(child_continues_to_read, leave, answer, b"answer.")
