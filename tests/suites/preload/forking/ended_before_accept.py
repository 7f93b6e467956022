"""A worker accepts a client that has sent its request, and has ended its half or closed, long before."""

for ends in (lambda client: client.shutdown(socket.SHUT_WR), lambda client: client.close()):
    for _ in range(2):
        listener = socket.create_server(("127.0.0.1", 0))
        go, start = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go, 1)
            with listener.accept()[0] as served:
                assert served.recv(100, socket.MSG_WAITALL) == b"request"
            os._exit(0)
        client = socket.create_connection(listener.getsockname())
        client.sendall(b"request")
        ends(client)
        let_others_run()
        os.write(start, b".")
        assert os.waitpid(child, 0)[1] == 0
        client.close()
        listener.close()
