/*
 * Moves patterns between the ranks of an MPI program and checks each byte: messages of all of the
 * library's protocols, to all ranks at once, in turn, in bursts and from any source; collectives;
 * puts and gets. The argument is the number of rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpich_abi.h"

#define LEN_MAX (1 << 20)
#define RANKS_MAX 16
/* Messages of this length are sent by rendezvous, and take too long for many rounds. */
#define LONG 65536
#define BURST 64

static int rank, size, rounds;
static unsigned char *out, *in;

static unsigned char byte_of(int from, int to, int len, int at)
{
	return (unsigned char)(from * 37 + to * 11 + len * 3 + at * 7 + at / 251);
}

static void fill(unsigned char *bytes, int from, int to, int len)
{
	for (int at = 0; at < len; at++)
		bytes[at] = byte_of(from, to, len, at);
}

static void check(const char *what, const unsigned char *bytes, int from, int to, int len)
{
	for (int at = 0; at < len; at++) {
		if (bytes[at] != byte_of(from, to, len, at)) {
			printf("WRONG: %s from %d to %d, byte %d of %d\n", what, from, to, at, len);
			fflush(stdout);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

static unsigned char *of_rank(unsigned char *bytes, int peer)
{
	return bytes + (size_t)peer * LEN_MAX;
}

static void send(const void *bytes, int len, int to)
{
	MPI_Send(bytes, len, MPI_BYTE, to, 1, MPI_COMM_WORLD);
}

static int receive(void *bytes, int len, int from)
{
	MPI_Status status;

	MPI_Recv(bytes, len, MPI_BYTE, from, 1, MPI_COMM_WORLD, &status);
	return status.MPI_SOURCE;
}

/* Each rank sends to all ranks, itself included, at once. */
static void all_pairs(int len)
{
	MPI_Request requests[2 * RANKS_MAX];

	for (int peer = 0; peer < size; peer++) {
		memset(of_rank(in, peer), 0, (size_t)len);
		MPI_Irecv(of_rank(in, peer), len, MPI_BYTE, peer, len, MPI_COMM_WORLD,
			  &requests[peer]);
		fill(of_rank(out, peer), rank, peer, len);
	}
	for (int peer = 0; peer < size; peer++)
		MPI_Isend(of_rank(out, peer), len, MPI_BYTE, peer, len, MPI_COMM_WORLD,
			  &requests[size + peer]);
	MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
	for (int peer = 0; peer < size; peer++)
		check("message", of_rank(in, peer), peer, rank, len);
}

/* Pairs of ranks send in turn, and then in bursts that end with an answer. */
static void in_pairs(int len)
{
	int peer = rank ^ 1, count = len < LONG ? rounds : 2;

	if (peer >= size)
		return;
	for (int round = 0; round < count; round++) {
		fill(out, rank, peer, len);
		memset(in, 0, (size_t)len);
		if (rank < peer)
			send(out, len, peer);
		receive(in, len, peer);
		if (rank > peer)
			send(out, len, peer);
		check("ping-pong", in, peer, rank, len);
	}
	for (int round = 0; round * BURST < count; round++) {
		for (int at = 0; at < BURST; at++) {
			if (rank < peer) {
				send(out, len, peer);
				continue;
			}
			memset(in, 0, (size_t)len);
			receive(in, len, peer);
			check("burst", in, peer, rank, len);
		}
		if (rank < peer)
			receive(in, 0, peer);
		else
			send(out, 0, peer);
	}
}

/* All other ranks send to rank 0, which receives in any order. */
static void from_any_source(int len)
{
	int sources = 0;

	if (rank != 0) {
		fill(out, rank, 0, len);
		send(out, len, 0);
		return;
	}
	for (int peer = 1; peer < size; peer++) {
		int from;

		memset(in, 0, (size_t)len);
		from = receive(in, len, MPI_ANY_SOURCE);
		check("message from any source", in, from, 0, len);
		sources |= 1 << from;
	}
	if (sources != (1 << size) - 2) {
		printf("WRONG: sources %#x\n", sources);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void collectives(int len)
{
	int mine = rank + 1, sum = 0;

	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != size * (size + 1) / 2) {
		printf("WRONG: sum %d\n", sum);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (int root = 0; root < size; root++) {
		memset(in, 0, (size_t)len);
		if (rank == root)
			fill(in, root, root, len);
		MPI_Bcast(in, len, MPI_BYTE, root, MPI_COMM_WORLD);
		check("broadcast", in, root, root, len);
	}
	for (int peer = 0; peer < size; peer++)
		fill(out + (size_t)peer * (size_t)len, rank, peer, len);
	memset(in, 0, (size_t)size * (size_t)len);
	MPI_Alltoall(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
	for (int peer = 0; peer < size; peer++)
		check("alltoall", in + (size_t)peer * (size_t)len, peer, rank, len);
}

/* Each rank puts to the next one and then gets from the previous one. */
static void one_sided(int len)
{
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;
	MPI_Win win;

	memset(in, 0, (size_t)len);
	MPI_Win_create(in, LEN_MAX, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	fill(out, rank, next, len);
	MPI_Put(out, len, MPI_BYTE, next, 0, len, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	check("put", in, previous, rank, len);
	/* A rank's fence may end before the puts to the other ranks do. */
	MPI_Barrier(MPI_COMM_WORLD);
	memset(out, 0, (size_t)len);
	MPI_Win_lock(MPI_LOCK_SHARED, previous, 0, win);
	MPI_Get(out, len, MPI_BYTE, previous, 0, len, MPI_BYTE, win);
	MPI_Win_unlock(previous, win);
	check("get", out, (previous + size - 1) % size, previous, len);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	static const int LENGTHS[] = { 0, 1, 8, 1000, 4096, 32768, 262145, LEN_MAX };

	rounds = argc > 1 ? atoi(argv[1]) : 1;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	out = malloc((size_t)LEN_MAX * RANKS_MAX);
	in = malloc((size_t)LEN_MAX * RANKS_MAX);
	if (!out || !in || size > RANKS_MAX)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (size_t at = 0; at < sizeof(LENGTHS) / sizeof(LENGTHS[0]); at++) {
		int len = LENGTHS[at];

		all_pairs(len);
		in_pairs(len);
		from_any_source(len);
		collectives(len);
		one_sided(len);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("CHECKED %d ranks\n", size);
	MPI_Finalize();
	return 0;
}
