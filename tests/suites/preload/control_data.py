"""Addresses and control data of messages, which TCP ignores on a connection."""

import ctypes
import socket
import struct

libc = ctypes.CDLL(None, use_errno=True)
RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
TO = ("192.0.2.1", 9)


class Message(ctypes.Structure):
    """`struct mmsghdr`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("name_len", ctypes.c_uint32),
        ("parts", ctypes.POINTER(ctypes.c_void_p * 2)),
        ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_len", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    ]


def error_of(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return error.errno


def results(address):
    """The results of the same calls on a connection at this address."""
    listener = socket.create_server((address, 0))
    client = socket.create_connection(listener.getsockname())
    server = listener.accept()[0]
    reader, writer = os.pipe()
    found = [error_of(client.sendmsg, [b"1"], [(*RIGHTS, struct.pack("i", writer))])]
    # The message in the queue refers to no descriptor.
    os.close(writer)
    os.set_blocking(reader, False)
    found.append(error_of(os.read, reader, 1))
    for number in (writer, -1):
        found.append(error_of(client.sendmsg, [b"2"], [(*RIGHTS, struct.pack("i", number))]))
    found.append(error_of(client.sendmsg, [b"3"], [(socket.SOL_SOCKET, 77, b"unknown")]))
    found.append(error_of(client.sendmsg, [b"4"], [(socket.IPPROTO_IP, 77, b"unknown")]))
    found.append(error_of(client.sendmsg, [b"5"], [], 0, TO))
    name = struct.pack("=HH4s8x", socket.AF_INET, 9, socket.inet_aton(TO[0]))
    word = ctypes.create_string_buffer(b"67")
    part = (ctypes.c_void_p * 2)(ctypes.addressof(word), 2)
    both = (Message * 2)(*[Message(name, 16, ctypes.pointer(part), 1) for _ in range(2)])
    found.append(libc.sendmmsg(client.fileno(), both, 2, 0))
    found.append([message.sent for message in both])
    client.shutdown(socket.SHUT_WR)
    received = b""
    while True:
        chunk, control, flags, _ = server.recvmsg(100, 100)
        found.append((control, flags))
        if not chunk:
            break
        received += chunk
    return is_offloaded(client), found[:9], received


offloaded, plain = results("127.0.0.1"), results("127.0.0.2")
assert offloaded[0] and not plain[0]
assert offloaded[1:] == plain[1:], (offloaded, plain)
