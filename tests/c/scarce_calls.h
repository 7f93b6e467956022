/*
 * A process in which the n-th system call that makes a descriptor fails. A thread of the process
 * decides for the kernel (seccomp_unotify(2)); its own calls are not filtered.
 */
#ifndef STACK_TESTS_SCARCE_CALLS_H
#define STACK_TESTS_SCARCE_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* The number of calls that were seen, the number of the call that fails, and its error. */
static atomic_long *scarce_calls_seen;
static const long *scarce_calls_point;
static int scarce_calls_error;
/* The descriptor by which the kernel asks; -1 until the filter is installed. */
static atomic_int scarce_calls_listener = -1;

static void *scarce_calls_decide(void *unused)
{
	(void)unused;
	while (scarce_calls_listener < 0)
		sched_yield();
	for (;;) {
		struct seccomp_notif call = {0};
		struct seccomp_notif_resp answer = {0};

		if (ioctl(scarce_calls_listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
			/* A signal may have ended the call meanwhile. */
			if (errno == EINTR || errno == ENOENT)
				continue;
			return NULL;
		}
		answer.id = call.id;
		if (atomic_fetch_add(scarce_calls_seen, 1) + 1 == *scarce_calls_point)
			answer.error = -scarce_calls_error;
		else
			answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(scarce_calls_listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

/* seccomp(2) by an instruction, because a library that sees the call may change its ways. */
static long scarce_calls_install(unsigned flags, const struct sock_fprog *filter)
{
#if defined(__x86_64__)
	long result = SYS_seccomp;

	__asm__ volatile("syscall"
			 : "+a"(result)
			 : "D"((long)SECCOMP_SET_MODE_FILTER), "S"((long)flags), "d"(filter)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long number __asm__("x8") = SYS_seccomp;
	register long first __asm__("x0") = SECCOMP_SET_MODE_FILTER;
	register long second __asm__("x1") = flags;
	register const void *third __asm__("x2") = filter;

	__asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second), "r"(third) : "memory");
	return first;
#endif
}

#define SCARCE_ASK BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
#define SCARCE_ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define SCARCE_LOAD(field)                                                                        \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define SCARCE_UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)
/* Asks if the call has this number. */
#define SCARCE_CALL(number) SCARCE_UNLESS(number, 1), SCARCE_ASK

/* Begins to count the calls. Returns 0 if the kernel does not permit it. */
static int scarce_calls_begin(atomic_long *seen, const long *point, int error)
{
	struct sock_filter code[] = {
		SCARCE_LOAD(nr),
		SCARCE_CALL(SYS_socket),
		SCARCE_CALL(SYS_socketpair),
		SCARCE_CALL(SYS_accept),
		SCARCE_CALL(SYS_accept4),
		SCARCE_CALL(SYS_openat),
		SCARCE_CALL(SYS_dup),
		SCARCE_CALL(SYS_epoll_create1),
		SCARCE_CALL(SYS_eventfd2),
		SCARCE_CALL(SYS_timerfd_create),
		SCARCE_CALL(SYS_signalfd4),
		SCARCE_CALL(SYS_memfd_create),
		SCARCE_CALL(SYS_pidfd_open),
		SCARCE_CALL(SYS_pipe2),
		SCARCE_CALL(SYS_inotify_init1),
		SCARCE_UNLESS(SYS_fcntl, 5),
		SCARCE_LOAD(args[1]),
		SCARCE_CALL(F_DUPFD),
		SCARCE_CALL(F_DUPFD_CLOEXEC),
		SCARCE_UNLESS(SYS_getsockopt, 3),
		SCARCE_LOAD(args[2]),
		SCARCE_CALL(SO_PEERPIDFD),
		SCARCE_ALLOW,
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
	pthread_t thread;
	long listener;

	scarce_calls_seen = seen;
	scarce_calls_point = point;
	scarce_calls_error = error;
	if (pthread_create(&thread, NULL, scarce_calls_decide, NULL) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 0;
	listener = scarce_calls_install(SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
	if (listener < 0)
		return 0;
	scarce_calls_listener = (int)listener;
	return 1;
}

#endif
