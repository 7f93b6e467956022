/*
 * Two programs connect over TCP, agree to use RDMA, and convert their connection.
 *
 *   convert --listen  127.0.0.1:4711 --ia iwarp-lo      (the server, serves one client)
 *   convert --connect 127.0.0.1:4711 --ia iwarp-lo      (the client)
 *
 * Further options: --no-rdma makes the program behave like one without RDMA, --reject (server)
 * rejects the request for RDMA. With either option the data is sent in streaming mode over the same
 * connection.
 *
 * The conversation is that of dat-api/examples/convert.rs, so either program can be the peer of the
 * other.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <dat2/udat.h>
#include <dat2/dat_iw_extensions.h>

#include "conversation.h"

#define PATIENCE_US (30u * 1000 * 1000)
/* The cookie of requests; receives have the cookies 0, 1, 2 ... */
#define REQUEST_COOKIE UINT64_C(1000)
/* The number of receives that the server posts. The client posts fewer. */
#define RECEIVES_MAX CLIENT_MESSAGES

struct registered {
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
	unsigned char *bytes;
	DAT_VLEN len;
};

/* The objects of one side for one RDMA connection. */
struct rdma {
	DAT_IA_HANDLE ia;
	DAT_PZ_HANDLE pz;
	DAT_EVD_HANDLE async, requests, connections, receives, transfers;
	DAT_EP_HANDLE ep;
	struct registered inbox, outbox;
	DAT_UINT32 rdma_max;
};

static const char *who;

#define say(...) (printf("%s: ", who), printf(__VA_ARGS__), fflush(stdout))

static int failed(const char *call, DAT_RETURN ret)
{
	const char *major = "", *minor = "";

	if (ret == DAT_SUCCESS)
		return 0;
	dat_strerror(ret, &major, &minor);
	say("%s: %s %s (0x%08x)\n", call, major, minor, (unsigned)ret);
	return 1;
}

static void must(const char *call, DAT_RETURN ret)
{
	if (failed(call, ret))
		die("cannot continue");
}

/* ---------------------------------------------------------------------------- RDMA */

static void register_memory(struct rdma *rdma, struct registered *memory, size_t len)
{
	DAT_REGION_DESCRIPTION region;
	DAT_VLEN granted_len;
	DAT_VADDR granted_address;

	if (posix_memalign((void **)&memory->bytes, 4096, len) != 0)
		die("no memory");
	memset(memory->bytes, 0, len);
	memory->len = len;
	region.for_va = memory->bytes;
	must("dat_lmr_create",
	     dat_lmr_create(rdma->ia, DAT_MEM_TYPE_VIRTUAL, region, len, rdma->pz,
			    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &memory->lmr, &memory->lmr_context,
			    &memory->rmr_context, &granted_len, &granted_address));
}

static void deregister_memory(struct registered *memory)
{
	must("dat_lmr_free", dat_lmr_free(memory->lmr));
	free(memory->bytes);
}

static void create_evd(struct rdma *rdma, DAT_COUNT qlen, DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd)
{
	must("dat_evd_create", dat_evd_create(rdma->ia, qlen, DAT_HANDLE_NULL, flags, evd));
}

/* Returns 0 and prints the reason if RDMA is not available here. */
static int open_rdma(struct rdma *rdma, char *name)
{
	DAT_IA_ATTR attr;

	rdma->async = DAT_HANDLE_NULL;
	if (failed("no RDMA here: dat_ia_open", dat_ia_open(name, 8, &rdma->async, &rdma->ia)))
		return 0;
	must("dat_ia_query", dat_ia_query(rdma->ia, &rdma->async, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	rdma->rdma_max = attr.max_rdma_size < DATA_LEN ? attr.max_rdma_size : DATA_LEN;
	must("dat_pz_create", dat_pz_create(rdma->ia, &rdma->pz));
	create_evd(rdma, 8, DAT_EVD_CR_FLAG, &rdma->requests);
	create_evd(rdma, 8, DAT_EVD_CONNECTION_FLAG, &rdma->connections);
	create_evd(rdma, 64, DAT_EVD_DTO_FLAG, &rdma->receives);
	create_evd(rdma, 64, DAT_EVD_DTO_FLAG, &rdma->transfers);
	must("dat_ep_create", dat_ep_create(rdma->ia, rdma->pz, rdma->receives, rdma->transfers,
					    rdma->connections, NULL, &rdma->ep));
	register_memory(rdma, &rdma->inbox, RECEIVES_MAX * MESSAGE_LEN);
	register_memory(rdma, &rdma->outbox, MESSAGE_LEN);
	return 1;
}

static void close_rdma(struct rdma *rdma)
{
	must("dat_ep_free", dat_ep_free(rdma->ep));
	deregister_memory(&rdma->inbox);
	deregister_memory(&rdma->outbox);
	must("dat_evd_free", dat_evd_free(rdma->transfers));
	must("dat_evd_free", dat_evd_free(rdma->receives));
	must("dat_evd_free", dat_evd_free(rdma->connections));
	must("dat_evd_free", dat_evd_free(rdma->requests));
	must("dat_pz_free", dat_pz_free(rdma->pz));
	must("dat_ia_close", dat_ia_close(rdma->ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static DAT_LMR_TRIPLET triplet(const struct registered *memory, size_t at, size_t len)
{
	DAT_LMR_TRIPLET iov = {
		.virtual_address = (DAT_VADDR)(uintptr_t)(memory->bytes + at),
		.segment_length = (DAT_SEG_LENGTH)len,
		.lmr_context = memory->lmr_context,
	};
	return iov;
}

static void post_receives(struct rdma *rdma, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		DAT_LMR_TRIPLET iov = triplet(&rdma->inbox, i * MESSAGE_LEN, MESSAGE_LEN);
		DAT_DTO_COOKIE cookie = { .as_64 = i };

		must("dat_ep_post_recv",
		     dat_ep_post_recv(rdma->ep, 1, &iov, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	}
}

/* Waits for one completion, which must be successful. Returns its cookie. */
static uint64_t completed(DAT_EVD_HANDLE evd, const char *what)
{
	DAT_EVENT event;
	DAT_COUNT more;

	must(what, dat_evd_wait(evd, PATIENCE_US, 1, &event, &more));
	if (event.event_number != DAT_DTO_COMPLETION_EVENT)
		die("%s: event 0x%x", what, (unsigned)event.event_number);
	if (event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS)
		die("%s: completion status %d", what,
		    (int)event.event_data.dto_completion_event_data.status);
	return event.event_data.dto_completion_event_data.user_cookie.as_64;
}

static struct message receive(struct rdma *rdma, const char *kind)
{
	uint64_t cookie = completed(rdma->receives, kind);
	struct message message;

	if (cookie >= RECEIVES_MAX)
		die("a receive that was never posted");
	decode(rdma->inbox.bytes + cookie * MESSAGE_LEN, &message);
	if (strcmp(message.kind, kind) != 0)
		die("expected %s, got %s", kind, message.kind);
	return message;
}

static void send_message(struct rdma *rdma, const struct message *message)
{
	DAT_LMR_TRIPLET iov = triplet(&rdma->outbox, 0, MESSAGE_LEN);
	DAT_DTO_COOKIE cookie = { .as_64 = REQUEST_COOKIE };

	encode(message, rdma->outbox.bytes);
	must("dat_ep_post_send",
	     dat_ep_post_send(rdma->ep, 1, &iov, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	completed(rdma->transfers, message->kind);
}

enum direction { RDMA_WRITE, RDMA_READ };

/* Moves all of `local` to or from the peer, in pieces of at most the adapter's limit. */
static void transfer(struct rdma *rdma, enum direction direction, struct registered *local,
		     const struct message *offer)
{
	DAT_DTO_COOKIE cookie = { .as_64 = REQUEST_COOKIE };

	for (size_t at = 0; at < local->len; at += rdma->rdma_max) {
		size_t len = local->len - at < rdma->rdma_max ? local->len - at : rdma->rdma_max;
		DAT_LMR_TRIPLET iov = triplet(local, at, len);
		DAT_RMR_TRIPLET remote = {
			.virtual_address = offer->address + at,
			.segment_length = (DAT_SEG_LENGTH)len,
			.rmr_context = offer->context,
		};

		if (direction == RDMA_WRITE)
			must("dat_ep_post_rdma_write",
			     dat_ep_post_rdma_write(rdma->ep, 1, &iov, cookie, &remote,
						    DAT_COMPLETION_DEFAULT_FLAG));
		else
			must("dat_ep_post_rdma_read",
			     dat_ep_post_rdma_read(rdma->ep, 1, &iov, cookie, &remote,
						   DAT_COMPLETION_DEFAULT_FLAG));
		completed(rdma->transfers, direction == RDMA_WRITE ? "RDMA Write" : "RDMA Read");
	}
}

/* Waits for the next event of the connection. */
static DAT_EVENT connection_event(struct rdma *rdma)
{
	DAT_EVENT event;
	DAT_COUNT more;

	must("waiting for the connection",
	     dat_evd_wait(rdma->connections, PATIENCE_US, 1, &event, &more));
	return event;
}

static void expect_disconnected(struct rdma *rdma)
{
	DAT_EVENT event = connection_event(rdma);

	if (event.event_number != DAT_CONNECTION_EVENT_DISCONNECTED)
		die("the connection ended badly: event 0x%x", (unsigned)event.event_number);
	say("disconnected\n");
}

/* -------------------------------------------------------------------------- server */

static void serve_stream(int fd)
{
	char line[LINE_MAX_LEN + 1];
	unsigned long long len;
	void *data;
	uint64_t sum;

	read_line(fd, line);
	if (sscanf(line, "DATA %llu", &len) != 1 || len > 4ull * DATA_LEN || len % 8 != 0)
		die("expected DATA, got \"%s\"", line);
	data = malloc(len);
	if (!data)
		die("no memory");
	read_all(fd, data, len);
	sum = checksum(data, len);
	free(data);
	say("received %llu MiB by streaming, checksum %016llx\n", len >> 20,
	    (unsigned long long)sum);
	write_line(fd, "SUM %016llx", (unsigned long long)sum);
	read_line(fd, line);
	if (strcmp(line, "BYE") != 0)
		die("expected BYE, got \"%s\"", line);
	say("done in streaming mode\n");
	close(fd);
}

static void serve_rdma(struct rdma *rdma)
{
	struct message message = receive(rdma, "GREE");
	struct registered memory;
	uint64_t sum;

	say("received greeting \"%s\"\n", message.text);
	register_memory(rdma, &memory, DATA_LEN);
	message = (struct message){
		.kind = "REGN",
		.address = (uintptr_t)memory.bytes,
		.length = DATA_LEN,
		.context = memory.rmr_context,
		.text = "welcome from convert.c",
	};
	send_message(rdma, &message);
	say("offered %u MiB of memory\n", DATA_LEN >> 20);

	message = receive(rdma, "WROT");
	sum = checksum(memory.bytes, memory.len);
	if (sum != message.checksum)
		die("the client wrote %016llx, here is %016llx", (unsigned long long)message.checksum,
		    (unsigned long long)sum);
	say("RDMA Write arrived, checksum %016llx agrees\n", (unsigned long long)sum);
	message = (struct message){ .kind = "SUMS", .checksum = sum };
	send_message(rdma, &message);

	message = receive(rdma, "DONE");
	if (sum != message.checksum)
		die("the client read %016llx instead", (unsigned long long)message.checksum);
	say("the client has read it back, checksum agrees\n");
	expect_disconnected(rdma);
	deregister_memory(&memory);
}

/* Answers the connection request. Returns 1 if there is an RDMA connection now. */
static int answer(struct rdma *rdma, DAT_CR_HANDLE cr, int reject)
{
	DAT_CR_PARAM param;
	DAT_EVENT event;

	must("dat_cr_query", dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	say("request for RDMA with private data \"%.*s\"\n", (int)param.private_data_size,
	    (const char *)param.private_data);
	if (reject) {
		say("rejecting it, as requested; the socket is returned\n");
		must("dat_cr_reject", dat_cr_reject(cr, 9, "not today"));
		return 0;
	}
	/* The service point has reserved the endpoint, so it is not named again. */
	must("dat_cr_accept",
	     dat_cr_accept(cr, DAT_HANDLE_NULL, sizeof(PRIVATE_DATA) - 1, PRIVATE_DATA));
	event = connection_event(rdma);
	if (event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
		say("no RDMA connection: event 0x%x\n", (unsigned)event.event_number);
		return 0;
	}
	say("the TCP connection is an RDMA connection now\n");
	return 1;
}

/*
 * The passive side of the conversion. Returns 1 if there is an RDMA connection now. Otherwise the
 * socket belongs to this program again.
 */
static int serve_conversion(struct rdma *rdma, int fd, int reject)
{
	static const char final_message[] = "RDMA go\n";
	DAT_IW_SSP_HANDLE ssp;
	DAT_EVENT event;
	DAT_COUNT more;
	int converted = 0;

	post_receives(rdma, CLIENT_MESSAGES);
	if (failed("dat_iw_ssp_create",
		   dat_iw_ssp_create(rdma->ia, fd, rdma->ep, rdma->requests, final_message,
				     sizeof(final_message) - 1, &ssp))) {
		write_line(fd, "RDMA no");
		return 0;
	}
	say("the service point has the socket, and has sent \"RDMA go\"\n");
	if (failed("waiting for the request",
		   dat_evd_wait(rdma->requests, PATIENCE_US, 1, &event, &more)))
		event.event_number = DAT_SOFTWARE_EVENT;
	if (event.event_number == DAT_CONNECTION_REQUEST_EVENT)
		converted = answer(rdma, event.event_data.cr_arrival_event_data.cr_handle, reject);
	else
		say("the peer does not ask for RDMA; taking the socket back\n");
	must("dat_iw_ssp_free", dat_iw_ssp_free(ssp));
	return converted;
}

static void serve(const struct sockaddr_in *address, char *ia, int no_rdma, int reject)
{
	char line[LINE_MAX_LEN + 1];
	struct sockaddr_in local;
	socklen_t local_len = sizeof(local);
	struct rdma rdma;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, fd;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
	    listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&local, &local_len) != 0)
		die("listening: %s", strerror(errno));
	say("listening on %s:%u\n", inet_ntoa(local.sin_addr), ntohs(local.sin_port));
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accepting: %s", strerror(errno));
	close(listener);

	read_line(fd, line);
	say("streaming mode: the client says \"%s\"\n", line);
	write_line(fd, "HELLO %s", WHO);
	read_line(fd, line);
	say("streaming mode: the client says \"%s\"\n", line);

	if (no_rdma || strcmp(line, "RDMA yes") != 0 || !open_rdma(&rdma, ia)) {
		write_line(fd, "RDMA no");
		say("no RDMA; continuing in streaming mode\n");
		serve_stream(fd);
		return;
	}
	if (serve_conversion(&rdma, fd, reject))
		serve_rdma(&rdma);
	else
		serve_stream(fd);
	close_rdma(&rdma);
}

/* -------------------------------------------------------------------------- client */

static void visit_stream(int fd)
{
	char line[LINE_MAX_LEN + 1], expected[LINE_MAX_LEN + 1];
	void *data = malloc(DATA_LEN);
	double begin;

	if (!data)
		die("no memory");
	fill(data, DATA_LEN);
	snprintf(expected, sizeof(expected), "SUM %016llx",
		 (unsigned long long)checksum(data, DATA_LEN));
	begin = seconds();
	write_line(fd, "DATA %u", DATA_LEN);
	write_all(fd, data, DATA_LEN);
	read_line(fd, line);
	print_speed("client: streaming", DATA_LEN, begin);
	if (strcmp(line, expected) != 0)
		die("the server says \"%s\", expected \"%s\"", line, expected);
	say("the server's checksum agrees: %s\n", line);
	write_line(fd, "BYE");
	say("done in streaming mode\n");
	free(data);
	close(fd);
}

static void visit_rdma(struct rdma *rdma)
{
	struct message greeting = { .kind = "GREE", .text = "greetings from convert.c" };
	struct message offer, sums, note;
	struct registered source, sink;
	uint64_t sum, back;
	double begin;

	send_message(rdma, &greeting);
	offer = receive(rdma, "REGN");
	say("the server says \"%s\" and offers %u MiB\n", offer.text, offer.length >> 20);
	if (offer.length == 0 || offer.length % 8 != 0)
		die("an offer of %u bytes", offer.length);

	register_memory(rdma, &source, offer.length);
	fill(source.bytes, source.len);
	sum = checksum(source.bytes, source.len);
	begin = seconds();
	transfer(rdma, RDMA_WRITE, &source, &offer);
	print_speed("client: RDMA Write", source.len, begin);
	note = (struct message){ .kind = "WROT", .checksum = sum };
	send_message(rdma, &note);
	sums = receive(rdma, "SUMS");
	if (sums.checksum != sum)
		die("the server has %016llx instead of %016llx", (unsigned long long)sums.checksum,
		    (unsigned long long)sum);
	say("the server's checksum %016llx agrees\n", (unsigned long long)sum);

	register_memory(rdma, &sink, offer.length);
	begin = seconds();
	transfer(rdma, RDMA_READ, &sink, &offer);
	print_speed("client: RDMA Read", sink.len, begin);
	back = checksum(sink.bytes, sink.len);
	if (back != sum)
		die("read back %016llx instead", (unsigned long long)back);
	say("the bytes read back have the checksum %016llx too\n", (unsigned long long)back);
	note = (struct message){ .kind = "DONE", .checksum = back };
	send_message(rdma, &note);

	must("dat_ep_disconnect", dat_ep_disconnect(rdma->ep, DAT_CLOSE_GRACEFUL_FLAG));
	expect_disconnected(rdma);
	deregister_memory(&sink);
	deregister_memory(&source);
}

/* The active side of the conversion. Returns 1 if there is an RDMA connection now. */
static int visit_conversion(struct rdma *rdma, int fd)
{
	DAT_EVENT event;
	DAT_CONNECTION_EVENT_DATA *data = &event.event_data.connect_event_data;

	post_receives(rdma, SERVER_MESSAGES);
	if (failed("dat_iw_socket_connect",
		   dat_iw_socket_connect(rdma->ep, fd, PATIENCE_US, sizeof(PRIVATE_DATA) - 1,
					 PRIVATE_DATA)))
		return 0;
	event = connection_event(rdma);
	if (event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
		say("no RDMA connection (event 0x%x); continuing in streaming mode on the same connection\n",
		    (unsigned)event.event_number);
		return 0;
	}
	say("the TCP connection is an RDMA connection now; private data \"%.*s\"\n",
	    (int)data->private_data_size, (const char *)data->private_data);
	return 1;
}

static void run_client(const struct sockaddr_in *address, char *ia, int no_rdma)
{
	char line[LINE_MAX_LEN + 1];
	struct rdma rdma;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ready;

	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
		die("connecting: %s", strerror(errno));
	say("TCP connection to %s:%u\n", inet_ntoa(address->sin_addr), ntohs(address->sin_port));
	write_line(fd, "HELLO %s", WHO);
	read_line(fd, line);
	say("streaming mode: the server says \"%s\"\n", line);
	ready = !no_rdma && open_rdma(&rdma, ia);
	write_line(fd, ready ? "RDMA yes" : "RDMA no");
	read_line(fd, line);
	say("streaming mode: the server says \"%s\"\n", line);
	if (!ready || strcmp(line, "RDMA go") != 0) {
		say("no RDMA; continuing in streaming mode on the same connection\n");
		visit_stream(fd);
	} else if (visit_conversion(&rdma, fd)) {
		visit_rdma(&rdma);
	} else {
		visit_stream(fd);
	}
	if (ready)
		close_rdma(&rdma);
}

/* ---------------------------------------------------------------------------- main */

static struct sockaddr_in parse_address(char *text)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	char *colon = strrchr(text, ':');

	if (!colon)
		die("an address is ADDR:PORT, not %s", text);
	*colon = '\0';
	address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		die("not an IPv4 address: %s", text);
	return address;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "connect", required_argument, NULL, 'c' },
		{ "ia", required_argument, NULL, 'i' },
		{ "no-rdma", no_argument, NULL, 'n' },
		{ "reject", no_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	char default_ia[] = "iwarp-lo", *ia = default_ia;
	struct sockaddr_in address = { 0 };
	int no_rdma = 0, reject = 0, option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'l':
		case 'c':
			who = option == 'l' ? "server" : "client";
			address = parse_address(optarg);
			break;
		case 'i':
			ia = optarg;
			break;
		case 'n':
			no_rdma = 1;
			break;
		case 'r':
			reject = 1;
			break;
		default:
			return EXIT_FAILURE;
		}
	}
	if (!who)
		die("name --listen ADDR:PORT or --connect ADDR:PORT");
	if (strcmp(who, "server") == 0)
		serve(&address, ia, no_rdma, reject);
	else
		run_client(&address, ia, no_rdma);
	return EXIT_SUCCESS;
}
