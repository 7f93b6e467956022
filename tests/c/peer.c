/*
 * One end of a DAT connection, controlled by the command line.
 *
 *   peer listen  [port=N]            a public service point
 *   peer connect [host=A] [port=N]   dat_ep_connect
 *   peer ssp     socket=SOURCE       a socket service point: the passive conversion of a socket
 *   peer upgrade socket=SOURCE       dat_iw_socket_connect: the active conversion of a socket
 *
 * SOURCE is fd:N (inherited), unix:N (a descriptor that is received over the UNIX socket N), accept
 * or connect (a TCP connection that the program makes with host= and port=).
 * Settings: ia= host= port= messages= size= timeout_ms=, and flags that are on with =1:
 *   hold     after the connection is established, only wait for its end
 *   close    hold, but disconnect gracefully first
 *   flood    after the first message, send messages= of size= and count the completion statuses
 *   leave    send messages= of size=, and exit when the last Send has completed
 *   fetch    read size= bytes at the address that the peer announces, then hold
 *   poll     never block: poll the queues
 *   storm    receive a signal every 200 us whose handler does not restart system calls
 *   pause_ms wait this long between the request and the answer
 *   hold_ms  the time limit of hold, which is timeout_ms without this setting
 *   greet    first exchange a line each way in streaming mode
 *   handoff  hand the request to the process that listens at this port; accept if that fails
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <dat2/dat_iw_extensions.h>

#include "census.h"
#include "faults.h"
#include "kit.h"

#define PRIVATE_DATA "private data of the request"
#define ACCEPT_DATA "private data of the accept"
#define LAST_STREAM_LINE "go rdma\n"
#define RECV_AREA 0
#define SEND_AREA (64 * 1024)
#define WRITE_AREA (128 * 1024)
#define READ_AREA (192 * 1024)
#define AREA_LEN (64 * 1024)
/* The event of an attempt that has timed out may be this late on a busy machine. */
#define LATE_MS 60000

struct settings {
	const char *role, *ia, *host, *socket;
	unsigned port, messages, size, timeout_ms, pause_ms, hold_ms, handoff;
	int hold, close, flood, leave, fetch, poll, storm, greet;
};

/* The first message of each side: the address and key of its buffer. */
struct hello {
	uint64_t address;
	uint32_t rmr_context;
	uint32_t messages;
};

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

static void parse_one(struct settings *set, const char *arg)
{
	const char *value = strchr(arg, '=');
	size_t len = value ? (size_t)(value - arg) : 0;

	if (!value)
		abort_with(arg);
	value++;
#define IS(key) (len == sizeof(key) - 1 && memcmp(arg, key, len) == 0)
	if (IS("ia"))
		set->ia = value;
	else if (IS("host"))
		set->host = value;
	else if (IS("socket"))
		set->socket = value;
	else if (IS("port"))
		set->port = number(value);
	else if (IS("messages"))
		set->messages = number(value);
	else if (IS("size"))
		set->size = number(value);
	else if (IS("timeout_ms"))
		set->timeout_ms = number(value);
	else if (IS("pause_ms"))
		set->pause_ms = number(value);
	else if (IS("hold_ms"))
		set->hold_ms = number(value);
	else if (IS("hold"))
		set->hold = (int)number(value);
	else if (IS("close"))
		set->close = (int)number(value);
	else if (IS("flood"))
		set->flood = (int)number(value);
	else if (IS("leave"))
		set->leave = (int)number(value);
	else if (IS("fetch"))
		set->fetch = (int)number(value);
	else if (IS("poll"))
		set->poll = (int)number(value);
	else if (IS("storm"))
		set->storm = (int)number(value);
	else if (IS("handoff"))
		set->handoff = number(value);
	else if (IS("greet"))
		set->greet = (int)number(value);
	else
		abort_with(arg);
#undef IS
}

/* The numeric address and port of either family; link-local as in fe80::1%eth0. */
static struct addrinfo *address_of(const struct settings *set)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM };
	struct addrinfo *address;
	char port[16];

	snprintf(port, sizeof(port), "%u", set->port);
	if (getaddrinfo(set->host, port, &hints, &address))
		abort_with("host must be an IPv4 or IPv6 address");
	return address;
}

/* Prints an address that DAT returned, with the length of its family. */
static void print_address(const char *label, DAT_IA_ADDRESS_PTR address)
{
	socklen_t len = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						       : sizeof(struct sockaddr_in);
	char host[NI_MAXHOST] = "?";

	getnameinfo((struct sockaddr *)address, len, host, sizeof(host), NULL, 0, NI_NUMERICHOST);
	printf("%s %s\n", label, host);
}

static void print_endpoint(struct kit *kit)
{
	DAT_EP_PARAM param;

	must("dat_ep_query", dat_ep_query(kit->ep, DAT_EP_FIELD_ALL, &param));
	print_address("LOCAL", param.local_ia_address_ptr);
	print_address("REMOTE", param.remote_ia_address_ptr);
}

static void print_private_data(int len, const char *data)
{
	printf("PRIVATE %.*s\n", data ? len : 0, data ? data : "");
}

/* ---- sockets ---- */

static int receive_descriptor(int over)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *header;
	int fd;

	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	if (recvmsg(over, &message, 0) != 1)
		abort_with("no descriptor was received");
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS)
		abort_with("a message without descriptor");
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

static int accept_one(const struct settings *set)
{
	struct addrinfo *address = address_of(set);
	int yes = 1, listener = socket(address->ai_family, SOCK_STREAM, 0), fd;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, address->ai_addr, address->ai_addrlen) || listen(listener, 1))
		abort_with("cannot listen");
	freeaddrinfo(address);
	fd = accept(listener, NULL, NULL);
	close(listener);
	return fd;
}

static int connect_one(const struct settings *set)
{
	struct addrinfo *address = address_of(set);
	int fd = socket(address->ai_family, SOCK_STREAM, 0);

	if (connect(fd, address->ai_addr, address->ai_addrlen))
		abort_with("cannot connect");
	freeaddrinfo(address);
	return fd;
}

static int open_socket(const struct settings *set)
{
	const char *source = set->socket ? set->socket : "";
	sigset_t alarm;
	int fd;

	/* A storm tests the library, so signals are blocked in this code. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, NULL);
	if (strncmp(source, "fd:", 3) == 0)
		fd = (int)number(source + 3);
	else if (strncmp(source, "unix:", 5) == 0)
		fd = receive_descriptor((int)number(source + 5));
	else if (strcmp(source, "accept") == 0)
		fd = accept_one(set);
	else if (strcmp(source, "connect") == 0)
		fd = connect_one(set);
	else
		fd = -1;
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
	if (fd < 0)
		abort_with("no socket");
	return fd;
}

/* Reads one line, byte by byte, so that no byte after it is read. */
static void read_line(int fd, const char *label)
{
	char line[200];
	size_t len = 0;

	while (len < sizeof(line) - 1 && read(fd, line + len, 1) == 1 && line[len] != '\n')
		len++;
	line[len] = 0;
	printf("%s %s\n", label, line);
}

static void write_line(int fd, const char *line)
{
	if (write(fd, line, strlen(line)) != (ssize_t)strlen(line))
		abort_with("the stream does not take a line");
}

static void print_socket(int fd)
{
	int open = fcntl(fd, F_GETFD) >= 0;

	printf("SOCKET %s\n", open ? "open" : "closed");
}

/* ---- data ---- */

static void send_hello(struct kit *kit, const struct settings *set)
{
	struct hello hello = { .address = (uintptr_t)kit->buffer,
			       .rmr_context = kit->rmr_context,
			       .messages = set->messages };

	memcpy(kit->buffer + SEND_AREA, &hello, sizeof(hello));
	send_part(kit, SEND_AREA, sizeof(hello), set->timeout_ms);
}

static struct hello receive_hello(struct kit *kit, const struct settings *set)
{
	struct hello hello;

	if (completion(kit->recv_evd, set->timeout_ms, "hello") != sizeof(hello))
		abort_with("a hello of the wrong length");
	memcpy(&hello, kit->buffer + RECV_AREA, sizeof(hello));
	post_recv(kit, RECV_AREA, AREA_LEN);
	return hello;
}

static size_t receive_message(struct kit *kit, const struct settings *set, unsigned seed)
{
	size_t len = completion(kit->recv_evd, set->timeout_ms, "receive");

	verify("message", kit->buffer + RECV_AREA, len, seed);
	post_recv(kit, RECV_AREA, AREA_LEN);
	return len;
}

static void send_message(struct kit *kit, const struct settings *set, size_t len, unsigned seed)
{
	fill(kit->buffer + SEND_AREA, len, seed);
	send_part(kit, SEND_AREA, len, set->timeout_ms);
}

static void write_and_read_back(struct kit *kit, const struct settings *set, struct hello *peer)
{
	DAT_LMR_TRIPLET source = kit_part(kit, SEND_AREA, set->size);
	DAT_LMR_TRIPLET sink = kit_part(kit, READ_AREA, set->size);
	DAT_RMR_TRIPLET target = {
		.virtual_address = (DAT_VADDR)peer->address + WRITE_AREA,
		.segment_length = set->size,
		.rmr_context = peer->rmr_context,
	};
	DAT_DTO_COOKIE cookie = { .as_64 = 1 };

	fill(kit->buffer + SEND_AREA, set->size, 1000);
	must("dat_ep_post_rdma_write",
	     dat_ep_post_rdma_write(kit->ep, 1, &source, cookie, &target,
				    DAT_COMPLETION_DEFAULT_FLAG));
	completion(kit->request_evd, set->timeout_ms, "rdma write");
	must("dat_ep_post_rdma_read",
	     dat_ep_post_rdma_read(kit->ep, 1, &sink, cookie, &target,
				   DAT_COMPLETION_DEFAULT_FLAG));
	completion(kit->request_evd, set->timeout_ms, "rdma read");
	verify("read back", kit->buffer + READ_AREA, set->size, 1000);
}

static void exchange_active(struct kit *kit, const struct settings *set)
{
	struct hello peer;

	send_hello(kit, set);
	peer = receive_hello(kit, set);
	for (unsigned seed = 0; seed < set->messages; seed++) {
		send_message(kit, set, set->size, seed);
		if (receive_message(kit, set, seed) != set->size)
			abort_with("an echo of the wrong length");
	}
	write_and_read_back(kit, set, &peer);
	send_message(kit, set, set->size, 2000);
	receive_message(kit, set, 2000);
	printf("DATA %u messages, write and read verified\n", set->messages);
}

static void exchange_passive(struct kit *kit, const struct settings *set)
{
	struct hello peer = receive_hello(kit, set);
	size_t len;

	send_hello(kit, set);
	for (unsigned seed = 0; seed < peer.messages; seed++) {
		len = receive_message(kit, set, seed);
		send_message(kit, set, len, seed);
	}
	len = receive_message(kit, set, 2000);
	verify("written area", kit->buffer + WRITE_AREA, len, 1000);
	send_message(kit, set, len, 2000);
	printf("DATA %u messages, written area verified\n", peer.messages);
}

/* ---- connections ---- */

/* Prints the next connection event. Returns 1 if it is ESTABLISHED. */
static int connection_event(struct kit *kit, unsigned timeout_ms)
{
	DAT_EVENT event;
	DAT_CONNECTION_EVENT_DATA *data = &event.event_data.connect_event_data;

	if (!next_event(kit->connect_evd, timeout_ms, &event))
		return 0;
	printf("EVENT %s\n", event_name(event.event_number));
	if (data->private_data_size > 0)
		print_private_data((int)data->private_data_size, data->private_data);
	return event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED;
}

static void print_flushed(struct kit *kit)
{
	DAT_EVENT event;
	unsigned count = 0;

	while (dat_evd_dequeue(kit->recv_evd, &event) == DAT_SUCCESS)
		count += event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED;
	printf("FLUSHED %u\n", count);
	count = 0;
	while (dat_evd_dequeue(kit->request_evd, &event) == DAT_SUCCESS)
		count += event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS;
	printf("REQUESTS FAILED %u\n", count);
}

static int is_leaving;

/* Called by LeakSanitizer at the exit: a program that leaves its adapter open has leaks. */
int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
	return is_leaving;
}

/* Sends messages, and exits without a call that ends the connection. */
static void leave(struct kit *kit, const struct settings *set)
{
	for (unsigned seed = 0; seed < set->messages; seed++)
		send_message(kit, set, set->size, seed);
	printf("LEAVING\n");
	is_leaving = 1;
	exit(0);
}

/* Runs a connection from ESTABLISHED to its end. */
static void live(struct kit *kit, const struct settings *set, int active)
{
	if (set->flood)
		flood(kit, set->messages, set->size, set->timeout_ms);
	if (set->leave)
		leave(kit, set);
	if (set->fetch)
		fetch(kit, set->size);
	if (set->close)
		must("dat_ep_disconnect", dat_ep_disconnect(kit->ep, DAT_CLOSE_GRACEFUL_FLAG));
	if (set->hold || set->flood || set->fetch || set->close) {
		printf("REGION %08x %llx\n", (unsigned)kit->rmr_context,
		       (unsigned long long)(uintptr_t)kit->buffer);
		printf("HOLDING\n");
		connection_event(kit, set->hold_ms ? set->hold_ms : set->timeout_ms);
		print_flushed(kit);
		return;
	}
	print_endpoint(kit);
	if (active)
		exchange_active(kit, set);
	else
		exchange_passive(kit, set);
	if (active)
		must("dat_ep_disconnect", dat_ep_disconnect(kit->ep, DAT_CLOSE_GRACEFUL_FLAG));
	connection_event(kit, set->timeout_ms);
}

/* Hands a request to another process. Returns 0 if this process still has the request. */
static int hand_off(DAT_CR_HANDLE cr, unsigned port)
{
	DAT_RETURN ret = dat_cr_handoff(cr, port);

	if (ret != DAT_SUCCESS) {
		print_failure("dat_cr_handoff", ret);
		return 0;
	}
	printf("HANDED OFF\n");
	return 1;
}

/* Accepts the received request. Returns 1 if the connection is established. */
static int answer(struct kit *kit, const struct settings *set, DAT_EVENT *event)
{
	DAT_CR_HANDLE cr = event->event_data.cr_arrival_event_data.cr_handle;
	DAT_CR_PARAM param;

	must("dat_cr_query", dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	print_private_data((int)param.private_data_size, param.private_data);
	print_address("CALLER", param.remote_ia_address_ptr);
	pause_for(set->pause_ms);
	if (set->handoff && hand_off(cr, set->handoff))
		return 0;
	/* A request of a socket service point has its endpoint already. */
	must("dat_cr_accept",
	     dat_cr_accept(cr, param.local_ep_handle ? DAT_HANDLE_NULL : kit->ep,
			   sizeof(ACCEPT_DATA), ACCEPT_DATA));
	return connection_event(kit, set->timeout_ms);
}

static void run_listen(struct kit *kit, const struct settings *set)
{
	DAT_PSP_HANDLE psp;
	DAT_EVENT event;

	post_recv(kit, RECV_AREA, AREA_LEN);
	must("dat_psp_create",
	     dat_psp_create(kit->ia, set->port, kit->cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	printf("READY\n");
	if (next_event(kit->cr_evd, set->timeout_ms, &event)) {
		printf("EVENT %s\n", event_name(event.event_number));
		if (answer(kit, set, &event))
			live(kit, set, 0);
	}
	must("dat_psp_free", dat_psp_free(psp));
}

static void run_connect(struct kit *kit, const struct settings *set)
{
	struct addrinfo *address = address_of(set);

	post_recv(kit, RECV_AREA, AREA_LEN);
	must("dat_ep_connect",
	     dat_ep_connect(kit->ep, (DAT_IA_ADDRESS_PTR)address->ai_addr, set->port,
			    set->timeout_ms * 1000, sizeof(PRIVATE_DATA), PRIVATE_DATA,
			    DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	freeaddrinfo(address);
	if (connection_event(kit, set->timeout_ms + LATE_MS))
		live(kit, set, 1);
}

static void run_ssp(struct kit *kit, const struct settings *set)
{
	const char *last = set->greet ? LAST_STREAM_LINE : "";
	int fd = open_socket(set), up = 0;
	DAT_IW_SSP_HANDLE ssp;
	DAT_EVENT event;

	if (set->greet)
		read_line(fd, "GREETED");
	post_recv(kit, RECV_AREA, AREA_LEN);
	must("dat_iw_ssp_create", dat_iw_ssp_create(kit->ia, fd, kit->ep, kit->cr_evd,
						    (DAT_PVOID)last, (DAT_COUNT)strlen(last),
						    &ssp));
	printf("READY\n");
	if (next_event(kit->cr_evd, set->timeout_ms, &event)) {
		printf("EVENT %s\n", event_name(event.event_number));
		if (event.event_number == DAT_CONNECTION_REQUEST_EVENT)
			up = answer(kit, set, &event);
		if (up)
			live(kit, set, 0);
	}
	must("dat_iw_ssp_free", dat_iw_ssp_free(ssp));
	if (up || set->handoff)
		print_socket(fd);
}

static void run_upgrade(struct kit *kit, const struct settings *set)
{
	int fd = open_socket(set);

	if (set->greet) {
		write_line(fd, "may we use rdma?\n");
		read_line(fd, "GREETED");
	}
	post_recv(kit, RECV_AREA, AREA_LEN);
	must("dat_iw_socket_connect",
	     dat_iw_socket_connect(kit->ep, fd, set->timeout_ms * 1000, sizeof(PRIVATE_DATA),
				   PRIVATE_DATA));
	if (connection_event(kit, set->timeout_ms + LATE_MS))
		live(kit, set, 1);
	print_socket(fd);
}

int main(int argc, char **argv)
{
	struct settings set = { .ia = "iwarp-lo",
				.host = "127.0.0.1",
				.port = 7471,
				.messages = 10,
				.size = 4096,
				.timeout_ms = 60000 };
	struct census before;
	struct kit kit;

	setvbuf(stdout, NULL, _IOLBF, 0);
	set.role = argc > 1 ? argv[1] : "";
	for (int at = 2; at < argc; at++)
		parse_one(&set, argv[at]);
	if (set.size > AREA_LEN)
		abort_with("size is larger than the receive buffer");
	kit_polls = set.poll;
	warm_up(&kit, set.ia);
	before = census_take();
	if (set.storm)
		storm(200);
	kit_open(&kit, set.ia);
	if (strcmp(set.role, "listen") == 0)
		run_listen(&kit, &set);
	else if (strcmp(set.role, "connect") == 0)
		run_connect(&kit, &set);
	else if (strcmp(set.role, "ssp") == 0)
		run_ssp(&kit, &set);
	else if (strcmp(set.role, "upgrade") == 0)
		run_upgrade(&kit, &set);
	else
		abort_with("no such role");
	kit_free(&kit);
	if (set.storm)
		storm(0);
	census_print(before);
	printf("DONE\n");
	return 0;
}
