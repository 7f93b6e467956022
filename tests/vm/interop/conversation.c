/* The exchanges of interop peers, over either interface. See interop.h. */
#include "interop.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define FLOOD_LEN (2u << 20)
#define FLOOD_DEPTH 32u

enum command {
	HELLO = 1, /* address and key of the sender's buffer */
	OK, /* the request is done, and the data was correct */
	CHECK, /* verify the `size` bytes that were written to your sink */
	EXPECT, /* post a receive of `size` bytes, then answer OK */
	WRITE, /* write `size` bytes */
	READ, /* read `size` bytes at `offset` of the sender's source, `count` reads at once */
	SEND, /* send `size` bytes */
	FLOOD, /* write `size` bytes in pieces of odd lengths */
	EXPOSE, /* send a key that the sender will invalidate */
	EXPOSED,
	BYE,
};

struct message {
	uint32_t command, size, offset, count;
	uint64_t address;
	uint32_t key, seed;
};

struct settings set = { .role = "", .ia = "", .host = "", .exchange = "brief", .by = "connect",
			.first = "connect", .port = 7471, .reads = 8, .times = 1, .expect = -1 };
char *buffer;

static struct place peer;
static uint32_t my_seed, peer_seed;

void abort_with(const char *why)
{
	printf("ABORTED %s\n", why);
	fflush(stdout);
	exit(1);
}

static void set_one(const char *arg)
{
	const char *value = strchr(arg, '=');
	size_t len = value ? (size_t)(value - arg) : 0;
	unsigned number = value ? (unsigned)strtoul(value + 1, NULL, 10) : 0;
#define IS(key) (len == sizeof(key) - 1 && memcmp(arg, key, len) == 0)

	if (IS("ia"))
		set.ia = value + 1;
	else if (IS("host"))
		set.host = value + 1;
	else if (IS("exchange"))
		set.exchange = value + 1;
	else if (IS("by"))
		set.by = value + 1;
	else if (IS("first"))
		set.first = value + 1;
	else if (IS("port"))
		set.port = number;
	else if (IS("data"))
		set.data = number;
	else if (IS("expect"))
		set.expect = (int)number;
	else if (IS("reject"))
		set.reject = number;
	else if (IS("reads"))
		set.reads = number;
	else if (IS("times"))
		set.times = number;
	else if (IS("late"))
		set.late = number;
	else
		abort_with(arg);
#undef IS
}

void parse(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	set.role = argc > 1 ? argv[1] : "";
	for (int at = 2; at < argc; at++)
		set_one(argv[at]);
}

/* ---- content ---- */

static unsigned char content(uint32_t seed, size_t at)
{
	return (unsigned char)(at * 31 + (at >> 8) * 17 + (at >> 16) * 5 + seed * 7 + 1);
}

static void fill(size_t offset, size_t len, uint32_t seed, size_t from)
{
	for (size_t at = 0; at < len; at++)
		buffer[offset + at] = (char)content(seed, from + at);
}

static void verify(const char *what, size_t offset, size_t len, uint32_t seed, size_t from)
{
	for (size_t at = 0; at < len; at++) {
		if ((unsigned char)buffer[offset + at] == content(seed, from + at))
			continue;
		printf("CORRUPT %s of %zu bytes at byte %zu\n", what, len, at);
		exit(1);
	}
}

/* Clears the sink, so that the next verification sees new bytes only. */
static void blank(size_t len)
{
	memset(buffer + SINK, 0, len < AREA_LEN ? len + 64 : AREA_LEN);
}

/* Checks that the bytes after the received bytes are unchanged. */
static void verify_blank(const char *what, size_t len)
{
	for (size_t at = len; at < len + 64 && at < AREA_LEN; at++) {
		if (buffer[SINK + at]) {
			printf("BEYOND %s of %zu bytes at byte %zu\n", what, len, at);
			exit(1);
		}
	}
}

void make_private_data(unsigned char *to, size_t len)
{
	for (size_t at = 0; at < len; at++)
		to[at] = content(99, at);
}

void check_private_data(const void *data, size_t len)
{
	const unsigned char *bytes = data;
	size_t expected = (size_t)set.expect;

	if (set.expect < 0)
		return;
	printf("PRIVATE %zu\n", len);
	if (len != expected)
		abort_with("private data of another length");
	for (size_t at = 0; at < len; at++)
		if (bytes[at] != content(99, at))
			abort_with("private data of other content");
}

/* ---- messages ---- */

static void done(const char *what)
{
	if (wait_posted())
		abort_with(what);
}

static void send_message(struct message message)
{
	message.command = htonl(message.command);
	message.size = htonl(message.size);
	message.offset = htonl(message.offset);
	message.count = htonl(message.count);
	message.address = htobe64(message.address);
	message.key = htonl(message.key);
	message.seed = htonl(message.seed);
	memcpy(buffer + OUTBOX, &message, sizeof(message));
	post_send(OUTBOX, MESSAGE_LEN);
	done("a message");
}

static void send_command(enum command command, size_t size)
{
	send_message((struct message){ .command = command, .size = (uint32_t)size });
}

/* The next message. No receive is posted afterwards. */
static struct message receive_message(void)
{
	struct message message;

	if (wait_received() != (long)MESSAGE_LEN)
		abort_with("no message was received");
	memcpy(&message, buffer + INBOX, sizeof(message));
	message.command = ntohl(message.command);
	message.size = ntohl(message.size);
	message.offset = ntohl(message.offset);
	message.count = ntohl(message.count);
	message.address = be64toh(message.address);
	message.key = ntohl(message.key);
	message.seed = ntohl(message.seed);
	return message;
}

static struct message receive_and_listen(void)
{
	struct message message = receive_message();

	post_receive(INBOX, MESSAGE_LEN);
	return message;
}

static void expect_ok(const char *what)
{
	if (receive_and_listen().command != OK)
		abort_with(what);
}

/* If `acts`, this side sends the next message, for which the other side has posted a receive. */
static void exchange_hello(int connects, int acts)
{
	struct place mine = my_place();
	struct message hello = { .command = HELLO, .address = mine.address, .key = mine.key };
	int is_first = connects == (strcmp(set.first, "connect") == 0);
	struct message theirs;

	if (!my_seed)
		fill(SOURCE, AREA_LEN, connects ? 1 : 2, 0);
	my_seed = connects ? 1 : 2;
	peer_seed = 3 - my_seed;
	if (is_first)
		send_message(hello);
	theirs = receive_and_listen();
	if (theirs.command != HELLO)
		abort_with("no hello was received");
	peer = (struct place){ theirs.address, theirs.key };
	if (!is_first)
		send_message(hello);
	if (is_first && !acts)
		send_command(OK, 0);
	if (!is_first && acts)
		expect_ok("the peer does not continue");
}

static struct place of_peer(size_t offset)
{
	return (struct place){ peer.address + offset, peer.key };
}

/* ---- operations, at the side that executes them ---- */

static void do_write(size_t size)
{
	post_write(SOURCE, size, of_peer(SINK));
	done("a write");
}

/* Makes many writes. Enough are outstanding that the sender never waits for a single write. */
static void do_flood(size_t size)
{
	unsigned posted = 0, finished = 0;

	for (size_t at = 0, len; at < size; at += len, posted++) {
		len = (size_t)posted * 37 % 4099 + 1;
		if (len > size - at)
			len = size - at;
		if (posted - finished == FLOOD_DEPTH) {
			done("a write of the flood");
			finished++;
		}
		post_write(SOURCE + at, len, of_peer(SINK + at));
	}
	for (; finished < posted; finished++)
		done("a write of the flood");
}

static void do_reads(size_t size, size_t offset, unsigned count)
{
	size_t stride = size + 64;

	blank(count * stride);
	for (unsigned at = 0; at < count; at++)
		post_read(SINK + at * stride, size, of_peer(SOURCE + offset + at * size));
	for (unsigned at = 0; at < count; at++)
		done("a read");
	for (unsigned at = 0; at < count; at++)
		verify("read", SINK + at * stride, size, peer_seed, offset + at * size);
	if (count == 1)
		verify_blank("read", size);
}

static void do_send(size_t size)
{
	post_send(SOURCE, size);
	done("a send");
}

/* Posts a receive for data, when no other receive is posted. Sends OK before and after the data. */
static void receive_data(size_t size)
{
	post_receive(SINK, size);
	send_command(OK, 0);
	if (wait_received() != (long)size)
		abort_with("a message of another length");
	verify("sent", SINK, size, peer_seed, 0);
	verify_blank("sent", size);
	post_receive(INBOX, MESSAGE_LEN);
	send_command(OK, 0);
}

/* ---- the side that leads ---- */

static void lead_write(size_t size)
{
	do_write(size);
	send_command(CHECK, size);
	expect_ok("the written data is wrong");
}

static void lead_send(size_t size)
{
	send_command(EXPECT, size);
	expect_ok("the peer is not ready");
	do_send(size);
	expect_ok("the sent data is wrong");
}

static void ask_write(size_t size)
{
	blank(size);
	send_command(WRITE, size);
	expect_ok("the peer did not write");
	verify("written", SINK, size, peer_seed, 0);
	verify_blank("written", size);
}

static void ask_flood(size_t size)
{
	blank(size);
	send_command(FLOOD, size);
	expect_ok("the peer did not flood");
	verify("flooded", SINK, size, peer_seed, 0);
}

static void ask_reads(size_t size, size_t offset, unsigned count)
{
	send_message((struct message){ .command = READ, .size = (uint32_t)size,
			       .offset = (uint32_t)offset, .count = count });
	expect_ok("the peer did not read");
}

static void ask_send(size_t size)
{
	blank(size);
	send_command(SEND, size);
	if (receive_message().command != OK)
		abort_with("the peer does not send");
	receive_data(size);
	expect_ok("the peer has not seen its send acknowledged");
}

/* ---- the side that follows ---- */

static void follow_send(size_t size)
{
	send_command(OK, 0);
	expect_ok("the leader is not ready");
	do_send(size);
	expect_ok("the sent data is wrong");
	send_command(OK, 0);
}

/* ---- faults ---- */

static int fault_is(const char *name)
{
	return strcmp(set.exchange, name) == 0;
}

static void use_invalidated(void)
{
	struct message exposed;

	send_command(EXPOSE, 0);
	exposed = receive_and_listen();
	if (exposed.command != EXPOSED)
		abort_with("the peer exposed no memory");
	post_write(SOURCE, 100, (struct place){ exposed.address, exposed.key });
	done("a write to the exposed memory");
	send_message((struct message){ .command = CHECK, .size = 100 });
	expect_ok("the data written to the exposed memory is wrong");
	memset(buffer + OUTBOX, 0, MESSAGE_LEN);
	((struct message *)(void *)(buffer + OUTBOX))->command = htonl(OK);
	post_send_invalidating(OUTBOX, MESSAGE_LEN, exposed.key);
	done("a send that invalidates");
	expect_ok("the invalidation was not seen");
	printf("INVALIDATED\n");
	post_write(SOURCE, 100, (struct place){ exposed.address, exposed.key });
}

static void cause_fault(void)
{
	struct place beyond = of_peer(BUFFER_LEN - 10);
	struct place unknown = { peer.address, peer.key ^ 0x5a5a00 };

	printf("FAULT %s\n", set.exchange);
	if (fault_is("write-key"))
		post_write(SOURCE, 100, unknown);
	else if (fault_is("write-bounds"))
		post_write(SOURCE, 100, beyond);
	else if (fault_is("read-key"))
		post_read(SINK, 100, unknown);
	else if (fault_is("read-bounds"))
		post_read(SINK, 100, beyond);
	else if (fault_is("no-receive"))
		for (int at = 0; at < 2; at++)
			post_send(OUTBOX, MESSAGE_LEN);
	else if (fault_is("too-long"))
		post_send(SOURCE, MESSAGE_LEN + 1);
	else if (fault_is("invalidated"))
		use_invalidated();
	else
		abort_with("no such fault");
	printf("POSTED %s\n", wait_posted() ? "and failed" : "and done");
	wait_for_end();
}

static void follow_expose(void)
{
	uint32_t key = expose(SINK, 4096);

	blank(4096);
	send_message((struct message){ .command = EXPOSED, .key = key,
			       .address = my_place().address + SINK });
	if (receive_and_listen().command != CHECK)
		abort_with("the owner of the window received another message");
	verify("written to the exposed memory", SINK, 100, peer_seed, 0);
	send_command(OK, 0);
	expect_ok("no message that invalidates was received");
	send_command(OK, 0);
	wait_for_end();
}

/* ---- the exchanges ---- */

static const size_t all_sizes[] = { 0,	  1,	2,    3,    4,	   5,	  7,	 8,	31,
				    32,	  33,	1424, 1427, 1428,  1429,  1448,	 1460,	4095,
				    4097, 8941, 65537, 1048579, AREA_LEN };
static const size_t brief_sizes[] = { 0, 1, 33, 1448, 70001 };

static void lead_size(size_t size)
{
	lead_write(size);
	do_reads(size, 0, 1);
	ask_reads(size, 0, 1);
	lead_send(size);
	ask_write(size);
	ask_send(size);
}

static void lead_flood(void)
{
	do_flood(FLOOD_LEN);
	send_command(CHECK, FLOOD_LEN);
	expect_ok("the data of the flood is wrong");
	ask_flood(FLOOD_LEN);
	printf("EXCHANGED flood\n");
}

static void lead(void)
{
	int all = strcmp(set.exchange, "all") == 0;
	const size_t *sizes = all ? all_sizes : brief_sizes;
	size_t count = all ? sizeof(all_sizes) / sizeof(*all_sizes)
			   : sizeof(brief_sizes) / sizeof(*brief_sizes);

	for (size_t at = 0; at < count; at++)
		lead_size(sizes[at]);
	do_reads(5001, 3, 24);
	ask_reads(5001, 3, 24);
	if (all) {
		/* Small messages, at both sides of a page boundary, and several in a row. */
		do_reads(16, 4096 - 6, 8);
		ask_reads(16, 4096 - 6, 8);
		do_reads(1, 4095, 2);
	}
	printf("EXCHANGED %s\n", set.exchange);
}

static int follow_one(struct message message)
{
	switch (message.command) {
	case CHECK:
		verify("written", SINK, message.size, peer_seed, 0);
		blank(message.size);
		send_command(OK, 0);
		return 1;
	case WRITE:
		do_write(message.size);
		send_command(OK, 0);
		return 1;
	case FLOOD:
		do_flood(message.size);
		send_command(OK, 0);
		return 1;
	case READ:
		do_reads(message.size, message.offset, message.count);
		send_command(OK, 0);
		return 1;
	case SEND:
		follow_send(message.size);
		return 1;
	default:
		return 0;
	}
}

static void follow(void)
{
	for (;;) {
		struct message message = receive_message();

		if (message.command == EXPECT) {
			blank(message.size);
			receive_data(message.size);
			continue;
		}
		post_receive(INBOX, MESSAGE_LEN);
		if (message.command == BYE)
			break;
		if (message.command == EXPOSE)
			return follow_expose();
		if (!follow_one(message))
			abort_with("an unknown command");
	}
	printf("EXCHANGED\n");
}

static int is_faultless(void)
{
	static const char *const names[] = { "all", "brief", "flood", "greet" };

	for (size_t at = 0; at < sizeof(names) / sizeof(*names); at++)
		if (strcmp(set.exchange, names[at]) == 0)
			return 1;
	return 0;
}

int closes(int connects)
{
	return connects && (is_faultless() || strcmp(set.exchange, "none") == 0);
}

void run_exchange(int connects)
{
	int is_fault = !is_faultless() && strcmp(set.exchange, "none") != 0;
	int is_cause = is_fault && connects == (strcmp(set.by, "connect") == 0);

	if (strcmp(set.exchange, "none") == 0)
		return;
	exchange_hello(connects, is_fault ? is_cause : connects);
	if (is_cause)
		return cause_fault();
	if (is_fault)
		return strcmp(set.exchange, "invalidated") ? wait_for_end() : follow();
	if (connects) {
		if (strcmp(set.exchange, "flood") == 0)
			lead_flood();
		else if (strcmp(set.exchange, "greet"))
			lead();
		send_command(BYE, 0);
	} else {
		follow();
	}
}
