/*
 * What the two interop peers share: dat_peer.c speaks DAT, verbs_peer.c speaks librdmacm, and both
 * hold the conversation of conversation.c over a connection that they made their own way.
 *
 *   PEER listen  [key=value ...]
 *   PEER connect [key=value ...]
 * and of dat_peer alone, on a plain TCP socket that it converts:
 *   PEER ssp     [key=value ...]    a listening socket of its own, then dat_iw_ssp_create
 *   PEER upgrade [key=value ...]    a connected socket of its own, then dat_iw_socket_connect
 *
 *   ia= host= port=   where
 *   data=N            bytes of private data to send, with the request, the accept or the reject
 *   expect=N          bytes of private data that must come, with content; not looked at without
 *   reject=1          reject the request
 *   reads=N           reads that may be outstanding, either way
 *   times=N           so many connections, one after another
 *   talk=all          every operation and size both ways, then a close; or
 *   talk=brief        a few of them; or
 *   talk=flood        many writes of odd lengths, several under way at once, both ways; or
 *   talk=greet        a message each way, then a close; or
 *   talk=none         nothing: the side that connects closes; or the name of a fault:
 *   talk=write-key write-bounds read-key read-bounds no-receive too-long invalidated
 *   by=connect|listen who commits the fault
 *   late=1            the side that listens says OPEN, and listens when it has read a byte
 *   first=listen      the side that listens speaks first
 *
 * Lines on standard output are the result.
 */
#ifndef INTEROP_H
#define INTEROP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The one registered buffer. */
#define AREA_LEN (16u << 20)
#define MESSAGE_LEN 64u
#define INBOX 0u
#define OUTBOX 4096u
#define SOURCE 8192u
#define SINK (SOURCE + AREA_LEN + 8192u)
#define BUFFER_LEN (SINK + AREA_LEN + 8192u)

/* For what only a defect keeps from coming, on a machine that has other work. */
#define PATIENCE_MS 60000u

struct settings {
	const char *role, *ia, *host, *talk, *by, *first;
	unsigned port, data, reject, reads, times, late;
	int expect;
};

/* Where the peer's buffer is. */
struct place {
	uint64_t address;
	uint32_t key;
};

extern struct settings set;
extern char *buffer;

void parse(int argc, char **argv);
_Noreturn void give_up(const char *why);

/* Private data of `len` bytes, and whether that has come. */
void make_private_data(unsigned char *to, size_t len);
void check_private_data(const void *data, size_t len);

/* Talks over an established connection whose first receive (INBOX) is posted; returns when it is to
 * be closed, or has ended by the fault that was asked for. */
void converse(int connects);
/* Whether this side starts to close after converse(). */
int closes(int connects);

/* What each peer brings; all wait for PATIENCE_MS at most and give up then. */
struct place my_place(void);
void post_receive(size_t offset, size_t len);
/* Waits for a message; returns its length, or -1 when the receive failed, with its status said. */
long wait_received(void);
void post_send(size_t offset, size_t len);
void post_send_invalidating(size_t offset, size_t len, uint32_t key);
void post_write(size_t offset, size_t len, struct place to);
void post_read(size_t offset, size_t len, struct place from);
/* Waits for the oldest operation; 0 when it is done, otherwise its status was said. */
int wait_posted(void);
/* A key for part of the buffer that the peer may write to and invalidate. */
uint32_t lend(size_t offset, size_t len);
/* Waits for the end of the connection and says how it ended. */
void wait_for_end(void);

#endif
