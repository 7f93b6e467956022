/*
 * Loops of MPI calls as those of Intel's MPI Benchmarks. Each prints one line for each length: its
 * name, the length in bytes, the figure and its unit. A sequence number in each message is checked.
 *
 *	mpi_loops MILLISECONDS [LOOP]...
 *
 * Each figure is measured for about this time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpich_abi.h"

#define KIB 1024
#define MIB (1024 * KIB)
#define RANKS_MAX 16
#define WINDOW_MAX 64
/* The number of calls of the first part. */
#define WARM_UP 16

static int rank, size;
static unsigned char *out, *in;
static MPI_Win win;

/* The last bytes of a message carry its number. */
static void mark(unsigned char *bytes, int len, int number)
{
	memcpy(bytes + len - sizeof(number), &number, sizeof(number));
}

static void check(const char *what, const unsigned char *bytes, int len, int number)
{
	int got;

	memcpy(&got, bytes + len - sizeof(got), sizeof(got));
	if (got != number) {
		printf("WRONG: %s of %d bytes has number %d, not %d\n", what, len, got, number);
		fflush(stdout);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void send(int len, int to)
{
	MPI_Send(out, len, MPI_BYTE, to, 1, MPI_COMM_WORLD);
}

static void receive(int len, int from)
{
	MPI_Recv(in, len, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void ping_pong(int len, int number)
{
	mark(out, len, number);
	if (rank == 0) {
		send(len, 1);
		receive(len, 1);
	} else if (rank == 1) {
		receive(len, 0);
		send(len, 0);
	}
	if (rank < 2)
		check("a message", in, len, number);
}

/* The number of messages in flight: enough of them to be limited by the transport. */
static int window(int len)
{
	return len < 64 * KIB ? WINDOW_MAX : WINDOW_MAX / 4;
}

/* Rank 0 sends a window of messages, which rank 1 confirms. */
static void stream(int len, int number)
{
	MPI_Request requests[WINDOW_MAX];
	int count = window(len);

	if (rank > 1)
		return;
	for (int at = 0; at < count; at++) {
		unsigned char *room = (rank ? in : out) + (size_t)at * (size_t)len;

		if (rank == 0) {
			mark(room, len, number + at);
			MPI_Isend(room, len, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[at]);
		} else {
			MPI_Irecv(room, len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[at]);
		}
	}
	MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	if (rank == 0) {
		receive(4, 1);
		return;
	}
	for (int at = 0; at < count; at++)
		check("a message", in + (size_t)at * (size_t)len, len, number + at);
	send(4, 0);
}

/* Pairs of ranks send to each other at once. */
static void exchange(int len, int number)
{
	MPI_Request requests[2];
	int peer = rank ^ 1;

	if (peer >= size)
		return;
	mark(out, len, number);
	MPI_Irecv(in, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[0]);
	MPI_Isend(out, len, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	check("an exchange", in, len, number);
}

static void broadcast(int len, int number)
{
	if (rank == number % size)
		mark(in, len, number);
	MPI_Bcast(in, len, MPI_BYTE, number % size, MPI_COMM_WORLD);
	check("a broadcast", in, len, number);
}

static void allreduce(int len, int number)
{
	int count = len / (int)sizeof(int);

	mark(out, len, number);
	MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	check("a sum", in, len, number * size);
}

static void alltoall(int len, int number)
{
	for (int peer = 0; peer < size; peer++)
		mark(out + (size_t)peer * (size_t)len, len, number + rank);
	MPI_Alltoall(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
	for (int peer = 0; peer < size; peer++)
		check("an alltoall", in + (size_t)peer * (size_t)len, len, number + peer);
}

/* Rank 0 writes to the window of rank 1, which makes no call meanwhile but a barrier's. */
static void put(int len, int number)
{
	if (rank != 0)
		return;
	mark(out, len, number);
	MPI_Put(out, len, MPI_BYTE, 1, 0, len, MPI_BYTE, win);
	MPI_Win_flush(1, win);
}

static void get(int len, int number)
{
	(void)number;
	if (rank != 0)
		return;
	MPI_Get(out, len, MPI_BYTE, 1, 0, len, MPI_BYTE, win);
	MPI_Win_flush(1, win);
}

/* The figure of a loop, from the seconds of a call. */
static double half_us(double seconds, int len)
{
	(void)len;
	return seconds * 1e6 / 2;
}

static double us(double seconds, int len)
{
	(void)len;
	return seconds * 1e6;
}

static double rate(double seconds, int len)
{
	return window(len) / seconds / 1e6;
}

static double bytes(double seconds, int len)
{
	return (double)window(len) * len / seconds / 1e9;
}

struct loop {
	const char *name;
	void (*call)(int len, int number);
	double (*figure)(double seconds, int len);
	const char *unit;
	int is_one_sided;
	int lengths[4];
};

static const struct loop LOOPS[] = {
	{ "latency", ping_pong, half_us, "us", 0, { 8, 4 * KIB, 64 * KIB } },
	{ "rate", stream, rate, "M/s", 0, { 8 } },
	{ "bandwidth", stream, bytes, "GB/s", 0, { 64 * KIB, MIB } },
	{ "exchange", exchange, us, "us", 0, { 8, 64 * KIB } },
	{ "bcast", broadcast, us, "us", 0, { 8, 32 * KIB } },
	{ "allreduce", allreduce, us, "us", 0, { 8, 32 * KIB } },
	{ "alltoall", alltoall, us, "us", 0, { 8, KIB, 32 * KIB } },
	{ "put", put, us, "us", 1, { 8, 4 * KIB } },
	{ "get", get, us, "us", 1, { 8, 4 * KIB } },
};

/*
 * Calls the loop for some time on all ranks. Returns the seconds of a call. The first calls make
 * connections and register memory, so a second, short part chooses the number of calls.
 */
static double seconds_of_call(const struct loop *loop, int len, double seconds)
{
	const double parts[] = { 0, seconds / 8, seconds };
	double taken = 0;
	int number = 0, count = WARM_UP;

	for (size_t part = 0; part < sizeof(parts) / sizeof(parts[0]); part++) {
		double begun;

		if (part > 0)
			count = (int)(parts[part] / taken) + 1;
		MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
		MPI_Barrier(MPI_COMM_WORLD);
		begun = MPI_Wtime();
		for (int call = 0; call < count; call++)
			loop->call(len, number++);
		taken = (MPI_Wtime() - begun) / count;
	}
	/* The last put is complete at its target. */
	if (loop->call == put) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			check("a put", in, len, number - 1);
	}
	return taken;
}

static void measure(const struct loop *loop, double seconds)
{
	for (const int *len = loop->lengths; *len; len++) {
		double taken;

		if (loop->is_one_sided) {
			MPI_Win_create(in, MIB, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
			if (rank == 0)
				MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
		}
		taken = seconds_of_call(loop, *len, seconds);
		if (loop->is_one_sided) {
			if (rank == 0)
				MPI_Win_unlock(1, win);
			MPI_Barrier(MPI_COMM_WORLD);
			MPI_Win_free(&win);
		}
		if (rank == 0) {
			printf("FIGURE %s %d %.4f %s\n", loop->name, *len,
			       loop->figure(taken, *len), loop->unit);
			fflush(stdout);
		}
	}
}

static int is_chosen(const char *name, int argc, char **argv)
{
	for (int at = 2; at < argc; at++)
		if (!strcmp(name, argv[at]))
			return 1;
	return argc < 3;
}

int main(int argc, char **argv)
{
	double seconds;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	out = calloc(WINDOW_MAX / 4, MIB);
	in = calloc(WINDOW_MAX / 4, MIB);
	if (!out || !in || size < 2 || size > RANKS_MAX || argc < 2)
		MPI_Abort(MPI_COMM_WORLD, 2);
	seconds = atof(argv[1]) / 1e3;
	for (size_t at = 0; at < sizeof(LOOPS) / sizeof(LOOPS[0]); at++)
		if (is_chosen(LOOPS[at].name, argc, argv))
			measure(&LOOPS[at], seconds);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("MEASURED %d ranks\n", size);
	MPI_Finalize();
	return 0;
}
