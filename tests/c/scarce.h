/*
 * A process in which the n-th allocation fails, or the n-th and all after it. The program's
 * functions replace the C library's in all libraries of the process. Or a process that may open n
 * descriptors, or in which the n-th system call that makes one fails with EMFILE or ENFILE.
 *
 * Each point is a child process: it walks all calls, and its allocation n fails. The points begin
 * at 1 and end with the first one that the walk does not reach. Numbers of descriptors begin at 0.
 * A child that lacked descriptors walks once more when there are some, and then no call fails.
 */
#ifndef STACK_TESTS_SCARCE_H
#define STACK_TESTS_SCARCE_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scarce_calls.h"

/* The time limit of one point. */
#define POINT_SECONDS 60
/* The stack that a walk uses. Without address space, the kernel does not extend a stack. */
#define STACK_LEN (512 * 1024)
/* More descriptors than a walk opens. */
#define DESCRIPTORS_MAX 100

extern void *__libc_malloc(size_t len);
extern void *__libc_calloc(size_t count, size_t len);
extern void *__libc_realloc(void *old, size_t len);
extern void *__libc_memalign(size_t alignment, size_t len);

/* What is missing. */
enum scarcity {
	/* One allocation. */
	SCARCE_ONCE,
	/* One allocation and all after it; the address space does not grow either. */
	SCARCE_FROM,
	/* All descriptors beyond a number of them. */
	SCARCE_DESCRIPTORS,
	/* One descriptor, in this process or on the host. */
	SCARCE_EMFILE,
	SCARCE_ENFILE,
};

static atomic_long scarce_seen;
static long scarce_point;
static enum scarcity scarce_kind;

static void scarce_no_address_space(void)
{
	struct rlimit none;

	getrlimit(RLIMIT_AS, &none);
	none.rlim_cur = 0;
	setrlimit(RLIMIT_AS, &none);
}

/* Permits the process to open `count` more descriptors. */
static void scarce_limit_descriptors(long count)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	for (limit.rlim_cur = 0; fcntl((int)limit.rlim_cur, F_GETFD) >= 0 || count-- > 0;)
		limit.rlim_cur++;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* Permits the process to open as many descriptors as it may. */
static void scarce_end_limit(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max < 1024 ? limit.rlim_max : 1024;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* Counts an allocation. Returns 1 if it must fail. */
static int scarce_refuses(void)
{
	long number;

	if (scarce_point == 0 || scarce_kind >= SCARCE_DESCRIPTORS)
		return 0;
	number = atomic_fetch_add(&scarce_seen, 1) + 1;
	if (number == scarce_point && scarce_kind == SCARCE_FROM)
		scarce_no_address_space();
	if (scarce_kind == SCARCE_ONCE ? number != scarce_point : number < scarce_point)
		return 0;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t len)
{
	return scarce_refuses() ? NULL : __libc_malloc(len);
}

void *calloc(size_t count, size_t len)
{
	return scarce_refuses() ? NULL : __libc_calloc(count, len);
}

void *realloc(void *old, size_t len)
{
	return scarce_refuses() ? NULL : __libc_realloc(old, len);
}

void *memalign(size_t alignment, size_t len)
{
	return scarce_refuses() ? NULL : __libc_memalign(alignment, len);
}

void *aligned_alloc(size_t alignment, size_t len)
{
	return memalign(alignment, len);
}

int posix_memalign(void **made, size_t alignment, size_t len)
{
	void *block = memalign(alignment, len);

	if (!block)
		return ENOMEM;
	*made = block;
	return 0;
}

static void scarce_touch_stack(void)
{
	volatile char stack[STACK_LEN];

	for (size_t at = 0; at < sizeof(stack); at += 1024)
		stack[at] = 0;
}

/* The calls that failed at any point, and their errors. */
#define REFUSALS_MAX 256

struct scarce_refusal {
	char call[40];
	long error, count;
};

/* The memory that the children share with their parent. */
struct scarce_report {
	struct scarce_refusal refusals[REFUSALS_MAX];
	long seen, refused;
	int has_ended;
};

static struct scarce_report *scarce_report;

/* Records that a call has failed. */
static void scarce_refused(const char *call, long error)
{
	scarce_report->refused++;
	for (struct scarce_refusal *at = scarce_report->refusals;
	     at < scarce_report->refusals + REFUSALS_MAX; at++) {
		if (at->count == 0) {
			strncpy(at->call, call, sizeof(at->call) - 1);
			at->error = error;
		}
		if (strcmp(at->call, call) == 0 && at->error == error) {
			at->count++;
			return;
		}
	}
}

/* Ends a walk that has found a fault. */
static void scarce_fault(const char *what)
{
	dprintf(1, "FAULT point %ld: %s, errno %d\n", scarce_point, what, errno);
	_exit(1);
}

/* Makes descriptors scarce in this process. */
static void scarce_begin(enum scarcity kind, long point)
{
	int error = kind == SCARCE_EMFILE ? EMFILE : ENFILE;

	scarce_kind = kind;
	scarce_point = point;
	if (kind == SCARCE_DESCRIPTORS)
		scarce_limit_descriptors(point);
	if (kind > SCARCE_DESCRIPTORS && !scarce_calls_begin(&scarce_seen, &scarce_point, error))
		scarce_fault("calls cannot be filtered");
}

/* Walks with allocation `point` failing. Returns 0 if the process died. */
static int scarce_walk(enum scarcity kind, long point, void (*walk)(void))
{
	pid_t child;
	int status;

	scarce_report->seen = 0;
	scarce_report->has_ended = 0;
	child = fork();
	if (child == 0) {
		alarm(POINT_SECONDS);
		scarce_touch_stack();
		scarce_begin(kind, point);
		walk();
		scarce_report->seen = scarce_seen;
		if (kind >= SCARCE_DESCRIPTORS) {
			scarce_point = 0;
			scarce_end_limit();
			scarce_report->refused = 0;
			walk();
			if (scarce_report->refused > 0)
				scarce_fault("a call fails although there are descriptors");
		}
		scarce_report->has_ended = 1;
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("fork");
		exit(1);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 1;
	printf("DIED point %ld: %s %d%s\n", point, WIFSIGNALED(status) ? "signal" : "exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
	       scarce_report->has_ended ? ", after the walk" : "");
	return 0;
}

static enum scarcity scarce_kind_of(const char *name)
{
	if (strcmp(name, "descriptors") == 0)
		return SCARCE_DESCRIPTORS;
	if (strcmp(name, "EMFILE") == 0)
		return SCARCE_EMFILE;
	if (strcmp(name, "ENFILE") == 0)
		return SCARCE_ENFILE;
	return strcmp(name, "from") == 0 ? SCARCE_FROM : SCARCE_ONCE;
}

/* True if a walk at a point beyond this one is the same walk. */
static int scarce_is_last(enum scarcity kind, long point)
{
	if (kind == SCARCE_DESCRIPTORS)
		return point >= DESCRIPTORS_MAX;
	return scarce_report->seen < point;
}

/* Walks with each `stride`th allocation failing, beginning with `first`. */
static int scarce_main(int argc, char **argv, void (*walk)(void))
{
	enum scarcity kind = scarce_kind_of(argc > 1 ? argv[1] : "");
	long first = argc > 2 ? atol(argv[2]) : 1, stride = argc > 3 ? atol(argv[3]) : 1;
	long points = 0, dead = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	scarce_report = mmap(NULL, sizeof(*scarce_report), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (scarce_report == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (long point = first;; point += stride) {
		int is_alive = scarce_walk(kind, point, walk);

		points++;
		dead += !is_alive;
		if (is_alive ? scarce_is_last(kind, point) : dead > 20)
			break;
	}
	for (struct scarce_refusal *at = scarce_report->refusals; at->count > 0; at++)
		printf("REFUSED %ld times: %s, error %#lx\n", at->count, at->call, at->error);
	printf("POINTS %ld\n", points);
	printf(dead ? "FAILED\n" : "PASSED\n");
	return dead != 0;
}

#endif
