/*
 * The socket calls of librdmacm, between two sockets of one process or two processes.
 *
 *   rsocket_calls CASE
 *
 * Each case is a function below. The program prints CASE ok and exits with 0, or prints the check
 * that failed and exits with 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Those of <rdma/rsocket.h>, which is in a package of its own. */
int rsocket(int domain, int type, int protocol);
int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen);
int rlisten(int socket, int backlog);
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen);
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen);
int rshutdown(int socket, int how);
int rclose(int socket);
ssize_t rrecv(int socket, void *buf, size_t len, int flags);
ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
                  socklen_t *addrlen);
ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags);
ssize_t rsend(int socket, const void *buf, size_t len, int flags);
ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
                const struct sockaddr *dest_addr, socklen_t addrlen);
ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags);
ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt);
ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt);
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout);
int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
            struct timeval *timeout);
int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen);
int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen);
int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen);
int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen);
int rfcntl(int socket, int cmd, ...);
off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset);
int riounmap(int socket, void *buf, size_t len);
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags);
#define SOL_RDMA 0x10000
enum { RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s (errno %d)\n", __LINE__, #condition, errno);                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define FAILS(call, number) CHECK((errno = 0, (call) == -1 && errno == (number)))

enum { LIMIT_MS = 60000 };

static int listener = -1, client = -1, server = -1, maps;
static struct sockaddr_in address;

static void open_listener(void)
{
    socklen_t len = sizeof address;
    int one = 1;
    listener = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0);
    address = (struct sockaddr_in){ .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    CHECK(!rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    CHECK(!rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof maps));
    CHECK(!rbind(listener, (struct sockaddr *)&address, sizeof address));
    CHECK(!rlisten(listener, 4));
    CHECK(!rgetsockname(listener, (struct sockaddr *)&address, &len));
    CHECK(len == sizeof address && address.sin_port);
}

static int wait_for(int fd, short events)
{
    struct pollfd one = { .fd = fd, .events = events };
    CHECK(rpoll(&one, 1, LIMIT_MS) == 1);
    return one.revents;
}

static void connect_pair(void)
{
    struct sockaddr_in peer, own;
    socklen_t len = sizeof peer;
    int error = -1;
    open_listener();
    client = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(client >= 0 && !rfcntl(client, F_SETFL, O_NONBLOCK));
    CHECK(!rsetsockopt(client, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof maps));
    CHECK(rfcntl(client, F_GETFL) & O_NONBLOCK);
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    CHECK(wait_for(listener, POLLIN) == POLLIN);
    server = raccept(listener, (struct sockaddr *)&peer, &len);
    CHECK(server >= 0 && len == sizeof peer && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(wait_for(client, POLLOUT) == POLLOUT);
    len = sizeof error;
    CHECK(!rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) && error == 0);
    len = sizeof own;
    CHECK(!rgetpeername(client, (struct sockaddr *)&own, &len));
    CHECK(own.sin_port == address.sin_port);
}

static void close_all(void)
{
    CHECK(!rclose(client) && !rclose(server) && !rclose(listener));
    FAILS(rclose(client), EBADF);
}

static void setup(void)
{
    int one = 1, value = 0;
    socklen_t len = sizeof value;
    FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(rsocket(AF_INET, SOCK_DGRAM, 0), EPROTONOSUPPORT);
    FAILS(rlisten(0, 1), EBADF);
    FAILS((int)rsend(1, "", 1, 0), EBADF);
    connect_pair();
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), EISCONN);
    CHECK(!rsetsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    CHECK(!rgetsockopt(client, IPPROTO_TCP, TCP_NODELAY, &value, &len) && value == 1);
    FAILS(rsetsockopt(client, SOL_SOCKET, 4711, &one, sizeof one), ENOPROTOOPT);
    CHECK(!rfcntl(listener, F_SETFL, O_NONBLOCK));
    FAILS(raccept(listener, NULL, NULL), EAGAIN);
    close_all();
    int fresh = rsocket(AF_INET, SOCK_STREAM, 0);
    FAILS((int)rsend(fresh, "x", 1, 0), ENOTCONN);
    FAILS(rgetpeername(fresh, (struct sockaddr *)&address, &len), ENOTCONN);
    FAILS(rshutdown(fresh, SHUT_WR), ENOTCONN);
    CHECK(!rclose(fresh));
}

static void refused(void)
{
    open_listener();
    CHECK(!rclose(listener));
    client = rsocket(AF_INET, SOCK_STREAM, 0);
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), ECONNREFUSED);
    CHECK(!rclose(client));
    int error = 0;
    socklen_t len = sizeof error;
    client = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(!rfcntl(client, F_SETFL, O_NONBLOCK));
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    CHECK(wait_for(client, POLLOUT) & POLLERR);
    CHECK(!rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) && error == ECONNREFUSED);
    CHECK(!rclose(client));
}

static void messages(void)
{
    char text[32] = "", more[32] = "";
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    struct iovec out[3] = { { "abc", 3 }, { "", 0 }, { "defgh", 5 } };
    struct iovec in[2] = { { text, 2 }, { more, sizeof more } };
    struct msghdr sent = { .msg_iov = out, .msg_iovlen = 3 };
    struct msghdr received = { .msg_iov = in, .msg_iovlen = 2 };
    connect_pair();
    FAILS((int)rrecv(server, text, sizeof text, MSG_DONTWAIT), EAGAIN);
    CHECK(rsendmsg(client, &sent, 0) == 8);
    CHECK(rrecv(server, text, 3, MSG_PEEK | MSG_WAITALL) > 0 && text[0] == 'a');
    CHECK(rrecv(server, text, 8, MSG_WAITALL) == 8 && !memcmp(text, "abcdefgh", 8));
    CHECK(rwritev(server, out, 3) == 8);
    CHECK(wait_for(client, POLLIN) & POLLIN);
    CHECK(rrecvmsg(client, &received, MSG_WAITALL) > 0 && !memcmp(text, "ab", 2));
    CHECK(rsend(client, "1234", 4, 0) == 4);
    CHECK(rreadv(server, in, 2) > 0 && text[0] == '1');
    CHECK(rsend(server, "x", 1, 0) == 1);
    CHECK(wait_for(client, POLLIN) & POLLIN);
    CHECK(rrecvfrom(client, text, 32, 0, (struct sockaddr *)&from, &len) > 0);
    CHECK(from.sin_port == address.sin_port);
    FAILS((int)rsendto(client, "x", 1, 0, (struct sockaddr *)&from, len), EISCONN);
    FAILS((int)rsend(client, "x", 1, MSG_OOB), EOPNOTSUPP);
    CHECK(rsend(client, "x", 0, 0) == 0);
    close_all();
}

static void *drain(void *total)
{
    static unsigned char data[10007];
    unsigned char next = 0;
    for (ssize_t count; (count = rrecv(server, data, sizeof data, 0)) != 0;) {
        CHECK(count > 0);
        for (ssize_t i = 0; i < count; i++)
            CHECK(data[i] == next++);
        *(size_t *)total += (size_t)count;
    }
    return NULL;
}

/* A sender is stopped by a receiver that does not read, and is woken by one that does. */
static void flow(void)
{
    static unsigned char data[4099];
    unsigned char next = 0;
    size_t sent = 0, received = 0;
    pthread_t reader;
    connect_pair();
    for (int is_reading = 0; sent < 20000000;) {
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = (unsigned char)(next + i);
        ssize_t count = rsend(client, data, sizeof data, 0);
        if (count < 0) {
            CHECK(errno == EAGAIN);
            if (!is_reading) {
                struct pollfd one = { .fd = client, .events = POLLOUT };
                CHECK(rpoll(&one, 1, 0) == 0 && sent > 0);
                CHECK(!pthread_create(&reader, NULL, drain, &received));
            }
            is_reading = 1;
            CHECK(wait_for(client, POLLOUT) == POLLOUT);
            continue;
        }
        sent += (size_t)count;
        next = (unsigned char)(next + count);
    }
    CHECK(!rshutdown(client, SHUT_WR));
    CHECK(!pthread_join(reader, NULL));
    CHECK(received == sent);
    close_all();
}

static void ends(void)
{
    char text[8];
    connect_pair();
    CHECK(rsend(client, "last", 4, 0) == 4);
    CHECK(!rshutdown(client, SHUT_WR));
    FAILS((int)rsend(client, "x", 1, 0), EPIPE);
    CHECK(rrecv(server, text, 4, MSG_WAITALL) == 4);
    CHECK(rrecv(server, text, sizeof text, 0) == 0);
    CHECK(rsend(server, "back", 4, 0) == 4);
    CHECK(wait_for(client, POLLIN) & POLLIN);
    CHECK(rrecv(client, text, sizeof text, 0) > 0);
    FAILS(rshutdown(client, 7), EINVAL);
    CHECK(!rshutdown(client, SHUT_RDWR) && !rclose(client));
    CHECK(rrecv(server, text, sizeof text, 0) == 0);
    CHECK(wait_for(server, POLLIN) & POLLIN);
    FAILS((int)rsend(server, "x", 1, 0), EPIPE);
    CHECK(!rclose(server) && !rclose(listener));
}

/* A peer that ends without a word: what it sent is read, then the connection is reset. */
static void gone(void)
{
    char text[8];
    int status;
    pid_t child;
    struct sockaddr_in peer = { .sin_family = AF_INET };
    int port[2];
    CHECK(!pipe(port));
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(read(port[0], &peer, sizeof peer) == sizeof peer);
        client = rsocket(AF_INET, SOCK_STREAM, 0);
        CHECK(!rconnect(client, (struct sockaddr *)&peer, sizeof peer));
        CHECK(rsend(client, "dying", 5, 0) == 5);
        CHECK(rrecv(client, text, 1, 0) == 1);
        kill(getpid(), SIGKILL);
    }
    open_listener();
    CHECK(write(port[1], &address, sizeof address) == sizeof address);
    server = raccept(listener, NULL, NULL);
    CHECK(server >= 0);
    CHECK(rrecv(server, text, 2, MSG_WAITALL) == 2);
    CHECK(rsend(server, "x", 1, 0) == 1);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(rrecv(server, text, 3, MSG_WAITALL) == 3 && !memcmp(text, "ing", 3));
    FAILS((int)rrecv(server, text, 1, 0), ECONNRESET);
    CHECK(wait_for(server, POLLIN) & POLLERR);
    CHECK(!rclose(server) && !rclose(listener));
}

/* Sockets next to descriptors of the kernel. */
static void mixed(void)
{
    int ends_of_pipe[2];
    fd_set readable, writable;
    struct timeval none = { 0 };
    char text[4];
    connect_pair();
    CHECK(!pipe(ends_of_pipe));
    struct pollfd set[2] = { { .fd = ends_of_pipe[0], .events = POLLIN },
                             { .fd = server, .events = POLLIN } };
    CHECK(rpoll(set, 2, 0) == 0);
    CHECK(write(ends_of_pipe[1], "x", 1) == 1);
    CHECK(rpoll(set, 2, LIMIT_MS) == 1 && set[0].revents == POLLIN && !set[1].revents);
    CHECK(rsend(client, "y", 1, 0) == 1);
    CHECK(wait_for(server, POLLIN) == POLLIN);
    CHECK(rpoll(set, 2, LIMIT_MS) == 2);
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(server, &readable);
    FD_SET(client, &readable);
    FD_SET(client, &writable);
    int most = (client > server ? client : server) + 1;
    CHECK(rselect(most, &readable, &writable, NULL, NULL) == 2);
    CHECK(FD_ISSET(server, &readable) && FD_ISSET(client, &writable));
    CHECK(!FD_ISSET(client, &readable));
    CHECK(rrecv(server, text, sizeof text, 0) == 1);
    FD_ZERO(&readable);
    FD_SET(server, &readable);
    CHECK(rselect(most, &readable, NULL, NULL, &none) == 0 && !FD_ISSET(server, &readable));
    CHECK(rpoll(NULL, 0, 0) == 0);
    close_all();
}

static void mapped(void)
{
    static char window[10000], data[10000], text[4];
    connect_pair();
    FAILS((int)riomap(server, window, sizeof window, PROT_WRITE, 0, 0), ENOBUFS);
    FAILS((int)riowrite(client, data, 1, 0, 0), EINVAL);
    close_all();
    maps = 2;
    connect_pair();
    memset(data, 'd', sizeof data);
    CHECK(riomap(server, window, sizeof window, PROT_WRITE, 0, 5000) == 5000);
    CHECK(riomap(server, window, 1, PROT_WRITE, 0, -1) == (off_t)window);
    FAILS((int)riomap(server, window, 2, PROT_WRITE, 0, 0), ENOBUFS);
    CHECK(rsend(server, "map", 3, 0) == 3);
    CHECK(wait_for(client, POLLIN) & POLLIN);
    CHECK(!rfcntl(client, F_SETFL, 0));
    CHECK(rrecv(client, text, 3, MSG_WAITALL) == 3);
    FAILS((int)riowrite(client, data, 1, 4999, 0), EINVAL);
    FAILS((int)riowrite(client, data, 1, 15000, 0), EINVAL);
    CHECK(riowrite(client, data, 9000, 5500, 0) == 9000);
    CHECK(rsend(client, "end", 3, 0) == 3);
    CHECK(rrecv(server, text, 3, MSG_WAITALL) == 3);
    CHECK(!window[499] && window[500] == 'd' && window[9499] == 'd' && !window[9500]);
    CHECK(!riounmap(server, window, sizeof window));
    FAILS(riounmap(server, window, sizeof window), EINVAL);
    close_all();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = { { "setup", setup }, { "refused", refused }, { "messages", messages },
                  { "flow", flow },   { "ends", ends },       { "gone", gone },
                  { "mixed", mixed }, { "mapped", mapped } };
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run();
            printf("%s ok\n", argv[1]);
            return 0;
        }
    }
    printf("no such case\n");
    return 2;
}
