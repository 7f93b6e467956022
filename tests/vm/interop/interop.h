/*
 * Shared by the two interop peers: dat_peer.c uses DAT, verbs_peer.c uses librdmacm. Both make a
 * connection by their interface, and then run the conversation of conversation.c.
 *
 *   PEER listen  [key=value ...]
 *   PEER connect [key=value ...]
 * and of dat_peer alone, on a plain TCP socket that it converts:
 *   PEER ssp     [key=value ...]    a listening socket of its own, then dat_iw_ssp_create
 *   PEER upgrade [key=value ...]    a connected socket of its own, then dat_iw_socket_connect
 *
 *   ia= host= port=   the adapter and the peer's address
 *   data=N            bytes of private data to send, with the request, the accept or the reject
 *   expect=N          bytes of private data that must be received; without it they are not checked
 *   reject=1          reject the request
 *   reads=N           reads that may be outstanding in each direction
 *   times=N           the number of connections, one after another
 *   exchange=all      every operation and size both ways, then a close; or
 *   exchange=brief    a few of them; or
 *   exchange=flood    many writes of odd lengths, several in progress at once, both ways; or
 *   exchange=greet    a message each way, then a close; or
 *   exchange=none     nothing: the connecting side closes; or the name of a fault: write-key,
 *                     write-bounds, read-key, read-bounds, no-receive, too-long or invalidated
 *   by=connect|listen the side that commits the fault
 *   late=1            the listening side prints OPEN, and listens after it has read a byte
 *   first=listen      the listening side sends first
 *
 * Lines on standard output are the result.
 */
#ifndef INTEROP_H
#define INTEROP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The registered buffer. */
#define AREA_LEN (16u << 20)
#define MESSAGE_LEN 64u
#define INBOX 0u
#define OUTBOX 4096u
#define SOURCE 8192u
#define SINK (SOURCE + AREA_LEN + 8192u)
#define BUFFER_LEN (SINK + AREA_LEN + 8192u)

/* The time limit of an event, which is long enough for a busy machine. */
#define PATIENCE_MS 60000u

struct settings {
	const char *role, *ia, *host, *exchange, *by, *first;
	unsigned port, data, reject, reads, times, late;
	int expect;
};

/* Address and key of the peer's buffer. */
struct place {
	uint64_t address;
	uint32_t key;
};

extern struct settings set;
extern char *buffer;

void parse(int argc, char **argv);
_Noreturn void abort_with(const char *why);

/* Makes private data of `len` bytes, and checks received private data. */
void make_private_data(unsigned char *to, size_t len);
void check_private_data(const void *data, size_t len);

/* Runs the exchange of the settings over an established connection whose first receive (INBOX)
 * is posted. Returns when the connection is to be closed, or when the fault has ended it. */
void run_exchange(int connects);
/* Returns 1 if this side closes first after run_exchange(). */
int closes(int connects);

/* The functions of each peer. All wait for PATIENCE_MS at most, and then exit. */
struct place my_place(void);
void post_receive(size_t offset, size_t len);
/* Waits for a message. Returns its length, or -1 after printing the status of a failed receive. */
long wait_received(void);
void post_send(size_t offset, size_t len);
void post_send_invalidating(size_t offset, size_t len, uint32_t key);
void post_write(size_t offset, size_t len, struct place to);
void post_read(size_t offset, size_t len, struct place from);
/* Waits for the oldest operation. Returns 0 on success; otherwise it has printed the status. */
int wait_posted(void);
/* A key for part of the buffer that the peer may write to and invalidate. */
uint32_t expose(size_t offset, size_t len);
/* Waits for the end of the connection and prints its kind. */
void wait_for_end(void);

#endif
