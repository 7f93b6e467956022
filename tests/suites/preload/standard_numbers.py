"""A connection as standard input or output: the C library reads and writes it by internal calls, as in
an inetd-style service."""

C.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
C.fgets.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
C.fgets.restype = ctypes.c_char_p
C.fflush.argtypes = C.clearerr.argtypes = [ctypes.c_void_p]
STDIN = ctypes.c_void_p.in_dll(C, "stdin")
STDOUT = ctypes.c_void_p.in_dll(C, "stdout")


def transfer_lines(peer, number_in, number_out):
    """Transfers lines between stdio at one end and socket calls at the peer."""
    for word in (b"first", b"second"):
        if number_out == 1:
            assert C.fputs(word + b"\n", STDOUT) >= 0 and C.fflush(STDOUT) == 0
            assert peer.recv(100) == word + b"\n", "what stdio has written is not received"
        if number_in == 0:
            peer.sendall(b"answer to " + word + b"\n")
            line = ctypes.create_string_buffer(100)
            C.clearerr(STDIN)
            assert C.fgets(line, 100, STDIN) == b"answer to " + word + b"\n", line.value


def close_for_next(number):
    """Closes a number, for the call that follows: the first that makes a descriptor takes it. A thread
    of the stack that still works for the last connection would take it for a moment."""
    let_others_run()
    os.close(number)


kept = {number: os.dup(number) for number in (0, 1)}


def restored():
    for number, copy in kept.items():
        os.dup2(copy, number)


for address in ("127.0.0.1", "127.0.0.2"):
    listener = socket.create_server((address, 0))

    # As in inetd and its services, the descriptor is duplicated to the standard numbers.
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    assert is_offloaded(server) == (address == "127.0.0.1")
    for number in (0, 1):
        os.dup2(server.fileno(), number)
    server.close()
    transfer_lines(client, 0, 1)
    # Socket calls on the standard numbers still work.
    assert os.write(1, b"by a call") == 9 and client.recv(100) == b"by a call"
    restored()
    assert client.recv(1) == b""

    # dup, accept and connect use the lowest free number.
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    close_for_next(0)
    assert os.dup(server.fileno()) == 0
    transfer_lines(client, 0, None)
    restored()
    client.close()
    server.close()

    client = socket.create_connection(listener.getsockname())
    close_for_next(0)
    server, _ = listener.accept()
    assert server.fileno() == 0, server
    transfer_lines(client, 0, None)
    server.detach()
    restored()
    client.close()

    close_for_next(1)
    client = socket.create_connection(listener.getsockname())
    assert client.fileno() == 1, client
    server, _ = listener.accept()
    transfer_lines(server, None, 1)
    client.detach()
    restored()
    server.close()
