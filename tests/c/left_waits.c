/*
 * Threads that do not return from a call on an offloaded socket: they are cancelled, or a handler
 * jumps out of the call or ends the process. The argument names the case. The suite ends a program
 * that hangs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "waits.h"

/* A round that ends only at a thread's next tick takes half a second; twenty rounds take ten. */
#define ROUNDS 20
#define SOON_MS 5000
/* A busy machine delays some rounds as long. Rounds that end at ticks are slow each time. */
#define ATTEMPTS 6

static void some_rounds(int (*wait)(int fd))
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		long begun = now_ms();

		for (int round = 0; round < ROUNDS; round++)
			one_round(wait);
		if (now_ms() - begun < SOON_MS)
			return;
	}
	fail("a wait lasts until the next tick");
}

/* True if the process has the thread of an offload protocol's stack. */
static int has_stack(void)
{
	char path[300], name[100];
	struct dirent *task;
	DIR *tasks = opendir("/proc/self/task");
	int found = 0;

	while ((task = readdir(tasks))) {
		FILE *comm;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		if (task->d_name[0] == '.' || !(comm = fopen(path, "r")))
			continue;
		found |= fscanf(comm, "%99s", name) == 1 && !strcmp(name, "sdp-stack");
		fclose(comm);
	}
	closedir(tasks);
	return found;
}

static void many_rounds(int (*wait)(int fd))
{
	for (int round = 0; round < 400; round++)
		one_round(wait);
}

static _Atomic pid_t waiter;

static void until_asleep(void)
{
	char path[100], line[500];
	int asleep = 0;

	while (!waiter)
		pause_ms(1);
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter);
	while (asleep < 20) {
		FILE *stat = fopen(path, "r");

		check(stat && fgets(line, sizeof(line), stat), "the thread has gone");
		fclose(stat);
		asleep = strrchr(line, ')')[2] == 'S' ? asleep + 1 : 0;
		pause_ms(2);
	}
}

struct wait {
	int (*wait)(int fd);
	int fd;
};

static void *waits(void *argument)
{
	struct wait *wait = argument;

	waiter = gettid();
	wait->wait(wait->fd);
	return NULL;
}

static void cancelled(int (*wait)(int fd), int fd)
{
	struct wait asked = {wait, fd};
	pthread_t thread;
	void *result;

	waiter = 0;
	check(pthread_create(&thread, NULL, waits, &asked) == 0, "pthread_create");
	until_asleep();
	pthread_cancel(thread);
	pthread_join(thread, &result);
	check(result == PTHREAD_CANCELED, "it was cancelled");
}

/* A call that has sent some of its bytes may return, so the thread makes the next call. */
static int writes(int fd)
{
	static char bytes[1 << 20];

	while (write(fd, bytes, sizeof(bytes)) > 0)
		;
	return 0;
}

/* A thread that sleeps until a connection or bytes are received, or until it can send. */
static void cancel(void)
{
	for (size_t way = 0; way < WAYS_COUNT; way++) {
		cancelled(WAYS[way], listener);
		cancelled(WAYS[way], here);
		some_rounds(by_looking);
		some_rounds(WAYS[way]);
	}
	/* Two threads are cancelled at once. */
	for (int time = 0; time < 5; time++) {
		struct wait asked = {by_poll, here};
		pthread_t thread;

		check(pthread_create(&thread, NULL, waits, &asked) == 0, "pthread_create");
		cancelled(by_epoll, here);
		pthread_cancel(thread);
		pthread_join(thread, NULL);
	}
	many_rounds(by_epoll);
	cancelled(writes, here);
	connect_pair(TCP_ONLY);
	cancelled(writes, here);
}

static int exchanges(int fd)
{
	char bytes[1000] = {0};

	for (int round = 0; round < 50; round++) {
		send(there, bytes, sizeof(bytes), 0);
		recv(fd, bytes, sizeof(bytes), 0);
	}
	return 0;
}

/* Leaves a byte that a wait finds without a sleep. */
static void leave_a_byte(int fd)
{
	char byte;

	check(send(there, "xy", 2, 0) == 2, "send");
	check(recv(fd, &byte, 1, 0) == 1, "recv");
	check(by_poll(fd) == 1, "the byte that is left");
}

static void *waits_cancelled(void *argument)
{
	struct wait *wait = argument;

	if (wait->wait != exchanges)
		leave_a_byte(wait->fd);
	pthread_cancel(pthread_self());
	wait->wait(wait->fd);
	wait->wait = NULL;
	pthread_testcancel();
	return NULL;
}

static void *sends_cancelled(void *argument)
{
	int *fd = argument;

	pthread_cancel(pthread_self());
	send(*fd, "never said", 10, 0);
	*fd = -1;
	pthread_testcancel();
	return NULL;
}

/* A call that need not wait is a cancellation point, too, and sends nothing. */
static void never_sent(void)
{
	int fd = here;
	pthread_t thread;
	void *result;
	char byte;

	check(pthread_create(&thread, NULL, sends_cancelled, &fd) == 0, "pthread_create");
	pthread_join(thread, &result);
	check(result == PTHREAD_CANCELED, "it was cancelled");
	check(fd == here, "its send ended");
	check(send(here, "s", 1, 0) == 1, "send");
	check(recv(there, &byte, 1, 0) == 1 && byte == 's', "bytes of the cancelled send");
}

/* A thread that is cancelled before it waits or makes another call of the library. */
static void pending(void)
{
	never_sent();
	for (int time = 0; time < 10; time++) {
		for (size_t way = 0; way <= WAYS_COUNT; way++) {
			struct wait asked = {way < WAYS_COUNT ? WAYS[way] : exchanges, here};
			pthread_t thread;
			void *result;
			char byte;

			some_rounds(by_epoll);
			check(pthread_create(&thread, NULL, waits_cancelled, &asked) == 0,
			      "pthread_create");
			pthread_join(thread, &result);
			check(result == PTHREAD_CANCELED, "it was cancelled");
			check(way == WAYS_COUNT || asked.wait, "its wait ended");
			if (way < WAYS_COUNT)
				check(recv(here, &byte, 1, 0) == 1, "the byte that is left");
		}
	}
	connect_pair(TCP_ONLY);
	never_sent();
}

static sigjmp_buf before;
static volatile sig_atomic_t may_leave;

static void leave(int signal)
{
	(void)signal;
	siglongjmp(before, 1);
}

/* A thread whose handler jumps out of the wait for good, and then makes other calls. */
static void *leaves(void *argument)
{
	struct wait *wait = argument;

	waiter = gettid();
	if (!sigsetjmp(before, 1))
		wait->wait(wait->fd);
	for (;;)
		pause_ms(1000);
	return NULL;
}

static void left_by_another(void)
{
	struct wait asked = {by_poll, here};
	pthread_t thread;

	signal(SIGUSR1, leave);
	many_rounds(by_poll);
	check(pthread_create(&thread, NULL, leaves, &asked) == 0, "pthread_create");
	until_asleep();
	pthread_kill(thread, SIGUSR1);
	pause_ms(100);
	some_rounds(by_looking);
	some_rounds(by_poll);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	many_rounds(by_epoll);
}

static void *signals_once(void *argument)
{
	until_asleep();
	pthread_kill(*(pthread_t *)argument, SIGUSR1);
	return NULL;
}

static void left_by_itself(void)
{
	pthread_t self = pthread_self(), other;

	signal(SIGUSR1, leave);
	many_rounds(by_poll);
	for (int time = 0; time < 3; time++) {
		waiter = gettid();
		check(pthread_create(&other, NULL, signals_once, &self) == 0, "pthread_create");
		if (!sigsetjmp(before, 1))
			by_poll(here);
		pthread_join(other, NULL);
		some_rounds(by_looking);
	}
	many_rounds(by_looking);
	many_rounds(by_epoll);
}

static volatile sig_atomic_t handled, is_over;

static void disturb_in_us(int us)
{
	struct itimerval once = {{0, 0}, {0, us}};

	setitimer(ITIMER_REAL, &once, NULL);
}

/* Sends on the socket or polls it, and occasionally does not return. */
static void disturb(int signal)
{
	struct pollfd set = {here, POLLIN, 0};
	int why = errno;

	(void)signal;
	handled++;
	if (handled % 5 == 0)
		send(there, "y", 1, MSG_DONTWAIT);
	if (handled % 3 == 0)
		poll(&set, 1, handled % 2);
	if (!is_over)
		disturb_in_us(1 + handled * 7 % 61);
	errno = why;
	if (handled % 4 && may_leave)
		siglongjmp(before, 1);
}

static void disturbed_waits(volatile long *waits, sigset_t *alarm)
{
	char bytes[1000];
	long until = now_ms() + 3000;

	pthread_sigmask(SIG_BLOCK, alarm, NULL);
	disturb_in_us(300);
	/* On a busy machine, few handlers may have run so far. */
	while (now_ms() < until || handled <= 20 || *waits <= 20) {
		if (!sigsetjmp(before, 1)) {
			struct pollfd set = {here, POLLIN, 0};

			may_leave = 1;
			pthread_sigmask(SIG_UNBLOCK, alarm, NULL);
			poll(&set, 1, 1 + *waits % 3);
			pthread_sigmask(SIG_BLOCK, alarm, NULL);
		}
		may_leave = 0;
		++*waits;
		while (recv(here, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			;
	}
	is_over = 1;
	disturb_in_us(0);
}

/* Handlers that call the library during waits, and leave some of the waits for good. */
static void handlers(void)
{
	struct sigaction action = {.sa_handler = disturb};
	static volatile long waits;
	char bytes[1000];
	sigset_t alarm;

	many_rounds(by_poll);
	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	disturbed_waits(&waits, &alarm);
	pause_ms(50);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	pause_ms(50);
	while (recv(here, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	many_rounds(by_epoll);
	many_rounds(by_poll);
}

static void jump(int signal)
{
	(void)signal;
	siglongjmp(before, 1);
}

/* Starts and stops listening until the handler jumps out for good. */
static void *listens(void *us)
{
	static volatile int fd;
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (sigsetjmp(before, 1) == 0) {
		disturb_in_us(*(int *)us);
		pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
		while (listen(fd, 5) == 0) {
			close(fd);
			fd = socket(AF_INET, SOCK_STREAM, 0);
		}
		fail("listen");
	}
	close(fd);
	return NULL;
}

/* Long calls are interrupted, and leave no lock held. */
static void jumps(void)
{
	struct sigaction action = {.sa_handler = jump};
	sigset_t alarm;
	pthread_t thread;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	check(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
	check(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0, "pthread_sigmask");
	for (int round = 0; round < 300; round++) {
		int us = 1 + round % 100 * 7;

		/* A thread that has jumped out of a call is unusable, so each round starts another. */
		check(pthread_create(&thread, NULL, listens, &us) == 0, "pthread_create");
		check(pthread_join(thread, NULL) == 0, "pthread_join");
		free(malloc(1000));
	}
	one_round(by_poll);
}

/* Handlers jump out of waits that poll before they sleep. Later calls are the program's. */
static void polls_left(void)
{
	static volatile size_t way;
	static volatile int time;
	int state;

	signal(SIGALRM, leave);
	for (time = 0; time < 50; time++) {
		for (way = 0; way < WAYS_COUNT; way++) {
			for (int round = 0; round < 5; round++)
				one_round(WAYS[way]);
			if (!sigsetjmp(before, 1)) {
				disturb_in_us(50 + time * 7);
				WAYS[way](here);
			}
			pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
			check(state == PTHREAD_CANCEL_ENABLE, "the thread can be cancelled");
		}
	}
}

static atomic_int is_wanted;

static void count(int signal)
{
	(void)signal;
	handled++;
}

static void *waits_masked(void *alarm)
{
	struct pollfd set = {here, POLLIN, 0};
	char byte;

	signal(SIGALRM, count);
	for (int time = 0; time < 50; time++) {
		for (int round = 0; round < 5; round++)
			one_round(by_poll);
		pthread_sigmask(SIG_UNBLOCK, alarm, NULL);
		is_wanted = 1;
		disturb_in_us(100);
		check(ppoll(&set, 1, NULL, alarm) == 1, "a signal of the mask ends no wait");
		pthread_sigmask(SIG_BLOCK, alarm, NULL);
		check(recv(here, &byte, 1, 0) == 1, "recv");
	}
	is_wanted = -1;
	return NULL;
}

/* Signals that the mask of a wait blocks. */
static void masked(void)
{
	sigset_t alarm;
	pthread_t thread;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	check(pthread_create(&thread, NULL, waits_masked, &alarm) == 0, "pthread_create");
	for (int wanted; (wanted = is_wanted) >= 0; pause_ms(3)) {
		if (wanted && atomic_exchange(&is_wanted, 0) == 1) {
			pause_ms(5);
			check(send(there, "x", 1, 0) == 1, "send");
		}
	}
	pthread_join(thread, NULL);
	check(handled > 0, "no handler ran");
}

static int open_descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = 0;

	check(all != NULL, "opendir");
	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* The descriptors that the stack's threads may have opened meanwhile. */
#define OTHERS 10

/* A handler jumps out of an accept and of a receive, and the objects of these calls are free. */
static void left_calls(void)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	static volatile int before_all;
	static FILE *volatile words;
	static pthread_t self, other;
	char word[8] = "";
	int late;

	self = pthread_self();
	signal(SIGUSR1, leave);
	for (volatile int time = 0; time < 2 * OTHERS; time++) {
		waiter = gettid();
		check(pthread_create(&other, NULL, signals_once, &self) == 0, "pthread_create");
		if (!sigsetjmp(before, 1)) {
			accept(listener, NULL, NULL);
			fail("accept");
		}
		pthread_join(other, NULL);
		if (time == 0)
			before_all = open_descriptors();
	}
	check(open_descriptors() < before_all + OTHERS, "a descriptor of each call stays open");
	check(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "getsockname");
	close(listener);
	late = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(late, (struct sockaddr *)&at, len) < 0 && errno == ECONNREFUSED, "it listens");
	waiter = gettid();
	check(pthread_create(&other, NULL, signals_once, &self) == 0, "pthread_create");
	if (!sigsetjmp(before, 1)) {
		recv(here, word, 1, 0);
		fail("recv");
	}
	pthread_join(other, NULL);
	words = popen("echo word", "r");
	check(words && fgets(word, sizeof(word), words) && !strcmp(word, "word\n"), "popen");
	pclose(words);
	one_round(by_poll);
}

static void numbers(void)
{
	many_rounds(by_number);
	many_rounds(by_numbered_epoll);
}

/* Sets of `select` at invalid and misaligned addresses, and invalid arguments. */
static void sets(void)
{
	struct timeval soon = {0, 10000}, none = {0, 0}, odd = {0, -1};
	struct timespec soon_too = {0, 10000000};
	char room[2 * sizeof(fd_set)];
	/* The compiler warns about these arguments. */
	int (*volatile asks)(int, fd_set *, fd_set *, fd_set *, struct timeval *) = select;
	fd_set *nowhere = (void *)1, *misaligned = (void *)(room + 1), set;

	check(asks(here + 1, nowhere, NULL, NULL, &soon) < 0 && errno == EFAULT, "EFAULT");
	check(asks(here + 1, NULL, nowhere, NULL, &none) < 0 && errno == EFAULT, "EFAULT at once");
	check(pselect(here + 1, nowhere, NULL, NULL, &soon_too, NULL) < 0 && errno == EFAULT,
	      "EFAULT of pselect");
	check(asks(0, nowhere, NULL, NULL, &none) == 0, "no descriptor of nowhere");
	check(asks(-1, NULL, NULL, NULL, &none) < 0 && errno == EINVAL, "EINVAL");
	check(asks(0, NULL, NULL, NULL, &odd) < 0 && errno == EINVAL, "EINVAL of a time");
	for (int fd = here; fd; fd = fd == here ? listener : 0) {
		if (fd == here)
			check(send(there, "z", 1, 0) == 1, "send");
		FD_ZERO(&set);
		FD_SET(fd, &set);
		memcpy(misaligned, &set, sizeof(set));
		soon.tv_usec = 10000;
		check(asks(fd + 1, misaligned, NULL, NULL, fd == here ? NULL : &soon) == (fd == here),
		      "misaligned set");
		memcpy(&set, misaligned, sizeof(set));
		check(!FD_ISSET(fd, &set) == (fd != here), "the bit");
		if (fd == here)
			check(recv(here, room, 1, 0) == 1, "recv");
	}
}

/* Arguments that the kernel refuses are refused, and arguments that it accepts are accepted. */
static void arguments(void)
{
	/* The compiler warns about these arguments. */
	int (*volatile asks)(struct pollfd *, nfds_t, int) = poll;
	struct timespec odd = {0, 1000000000};
	char room[3 * sizeof(struct pollfd)];
	struct pollfd set = {listener, POLLIN, 0}, *misaligned = (void *)(room + 1);

	for (int time = 0; time < 3; time++) {
		check(asks((void *)1, 1, 10) < 0 && errno == EFAULT, "EFAULT");
		check(asks((void *)1, 1, 0) < 0 && errno == EFAULT, "EFAULT at once");
		check(asks(&set, 1 << 30, 0) < 0 && errno == EINVAL, "EINVAL");
		check(asks(&set, 1 << 30, 10) < 0 && errno == EINVAL, "EINVAL later");
		/* The kernel's count has 32 bits. */
		check(asks(&set, (nfds_t)1 << 60, 0) == 0, "none of them");
		check(asks(&set, (nfds_t)1 << 60, 10) == 0, "none of them later");
		check(asks(&set, ~(nfds_t)0, 10) < 0 && errno == EINVAL, "EINVAL of all");
		check(ppoll(&set, 1, &odd, NULL) < 0 && errno == EINVAL, "EINVAL of a time");
		check(poll(NULL, 0, 10) == 0, "nothing");
		set.fd = here;
		check(send(there, "z", 1, 0) == 1, "send");
		memcpy(misaligned, &set, sizeof(set));
		check(poll(misaligned, 1, -1) == 1, "misaligned");
		memcpy(&set, misaligned, sizeof(set));
		check(set.revents == POLLIN, "ready misaligned");
		check(recv(here, room, 1, 0) == 1, "recv");
		set.fd = listener;
		set.revents = 0;
		memcpy(misaligned, &set, sizeof(set));
		check(poll(misaligned, 1, 10) == 0, "a listener misaligned");
		sets();
		one_round(by_select);
		one_round(by_poll);
	}
}

static void end_process(int signal)
{
	(void)signal;
	_exit(0);
}

static void *reads_all(void *bytes)
{
	while (recv(there, bytes, 100000, 0) > 0)
		;
	return NULL;
}

static void send_until(int us)
{
	static char out[100000], in[100000];
	sigset_t all, none;
	pthread_t thread;

	connect_pair(INADDR_LOOPBACK);
	/* The reader inherits the mask, so that only the writer runs the handler. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &none);
	check(pthread_create(&thread, NULL, reads_all, in) == 0, "pthread_create");
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	signal(SIGALRM, end_process);
	disturb_in_us(us);
	while (send(here, out, sizeof(out), 0) > 0)
		;
	fail("send");
}

/* Processes that a handler ends while their only writer sends. */
static void exits(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		pid_t child = fork();
		int status;

		if (child == 0)
			send_until(30000 + round * 777);
		check(child > 0 && waitpid(child, &status, 0) == child, "waitpid");
		check(status == 0, "the child ended by its handler");
	}
}

int main(int count, char **arguments_)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} CASES[] = {
		{"cancel", cancel},     {"pending", pending},
		{"left", left_by_another}, {"left_by_itself", left_by_itself},
		{"handlers", handlers}, {"jumps", jumps},
		{"polls_left", polls_left}, {"masked", masked},
		{"numbers", numbers},   {"left_calls", left_calls},
		{"arguments", arguments}, {"exits", exits},
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	connect_pair(INADDR_LOOPBACK);
	for (long until = now_ms() + DEADLINE_MS; !getenv("SUITE_PROTOCOL"); pause_ms(1)) {
		if (has_stack())
			break;
		check(now_ms() < until, "it is offloaded");
	}
	for (size_t at = 0; at < sizeof(CASES) / sizeof(*CASES); at++) {
		if (count == 2 && !strcmp(arguments_[1], CASES[at].name)) {
			CASES[at].run();
			puts("PASS");
			return 0;
		}
	}
	fail("no such case");
}
