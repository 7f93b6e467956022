/*
 * A process that runs out of descriptors or memory: calls return errors, nothing hangs, and after
 * resources are available again everything works.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "census.h"
#include "pair.h"

static struct rlimit whole;

/* Limits the process to the descriptors in use plus `more`. */
static void allow_descriptors(int more)
{
	struct rlimit limit = whole;

	/* The limit applies to numbers, so free numbers below the highest used number count, too. */
	for (limit.rlim_cur = 0; fcntl((int)limit.rlim_cur, F_GETFD) >= 0 || more-- > 0;)
		limit.rlim_cur++;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		abort_with("setrlimit");
}

static void allow_all_descriptors(void)
{
	if (setrlimit(RLIMIT_NOFILE, &whole))
		abort_with("setrlimit");
}

static int is_short(const char *call, DAT_RETURN ret)
{
	if (ret == DAT_SUCCESS)
		return 0;
	must_refuse(call, ret, DAT_INSUFFICIENT_RESOURCES, ret & DAT_SUBTYPE_MASK);
	return 1;
}

/* Opens an adapter and a service with `more` descriptors. Returns 0 if they are too few. */
static int opens_with(int more)
{
	DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, evd;
	DAT_CONN_QUAL qualifier;
	DAT_CNO_HANDLE cno;
	DAT_PSP_HANDLE psp;
	DAT_IA_HANDLE ia;
	int enough;

	allow_descriptors(more);
	if (is_short("dat_ia_open", dat_ia_open("iwarp-lo", 8, &async_evd, &ia))) {
		allow_all_descriptors();
		return 0;
	}
	enough = !is_short("dat_cno_create",
			   dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno)) &&
		 !is_short("dat_evd_create",
			   dat_evd_create(ia, QUEUE_LEN, cno, DAT_EVD_CR_FLAG, &evd)) &&
		 !is_short("dat_psp_create_any",
			   dat_psp_create_any(ia, &qualifier, evd, DAT_PSP_CONSUMER_FLAG, &psp));
	allow_all_descriptors();
	must("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
	return enough;
}

static void descriptors_open(void)
{
	struct census before;
	int needed = 0;

	while (!opens_with(64))
		abort_with("64 descriptors are too few");
	before = census_take();
	while (!opens_with(needed))
		needed++;
	printf("NEEDED %d\n", needed);
	expect(needed > 0);
	expect(entries_of("/proc/self/fd") == before.descriptors);
	printf("PASSED\n");
}

static void descriptors_connect(void)
{
	struct pair pair;

	pair_open(&pair);
	allow_descriptors(0);
	must_refuse("dat_ep_connect",
		    dat_ep_connect(pair.active.ep, ia_address(&pair.passive), pair.qualifier,
				   WAIT_MS * 1000, 0, NULL, DAT_QOS_BEST_EFFORT,
				   DAT_CONNECT_DEFAULT_FLAG),
		    DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
	allow_all_descriptors();
	pair_connect(&pair);
	one_message(&pair, 1);
	pair_disconnect(&pair);
	pair_close(&pair);
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* The connecting end gets the only descriptor. The accepting end waits for a descriptor. */
static void descriptors_accept(void)
{
	struct pair pair;
	DAT_EVENT event;
	double start;

	pair_open(&pair);
	allow_descriptors(1);
	begin_connect(&pair, pair.active.ep);
	start = cpu_seconds();
	expect(!next_event(pair.passive.cr_evd, 600, &event));
	/* An end that cannot accept does not retry without a pause. */
	expect(cpu_seconds() - start < 0.3);
	allow_all_descriptors();
	establish(&pair, pair.passive.ep);
	one_message(&pair, 1);
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* Waits on EVDs that have never waited, without a descriptor. */
static void descriptors_wait(void)
{
	struct pair pair;
	DAT_EVENT event;
	DAT_COUNT more;
	double start;

	pair_open(&pair);
	pair_connect(&pair);
	allow_descriptors(0);
	for (unsigned seed = 1; seed < 100; seed++)
		one_message(&pair, seed);
	start = cpu_seconds();
	expect(DAT_GET_TYPE(dat_evd_wait(pair.passive.async_evd, 500000, 1, &event, &more)) ==
	       DAT_TIMEOUT_EXPIRED);
	expect(cpu_seconds() - start < 0.25);
	allow_all_descriptors();
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* ---- memory ---- */

/* The memory that the process has allocated to leave none, as a list. */
static void **hoard;

static void take_all_memory(void)
{
	struct rlimit limit;
	unsigned long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");

	if (!statm || fscanf(statm, "%lu", &pages) != 1)
		abort_with("statm");
	fclose(statm);
	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE);
	if (setrlimit(RLIMIT_AS, &limit))
		abort_with("setrlimit");
	for (size_t len = 1 << 20; len >= sizeof(void *);) {
		void **piece = malloc(len);

		if (!piece) {
			len /= 2;
			continue;
		}
		*piece = hoard;
		hoard = piece;
	}
}

static void give_all_memory_back(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_AS, &limit))
		abort_with("setrlimit");
	while (hoard) {
		void **next = *hoard;

		free(hoard);
		hoard = next;
	}
}

#define MANY 100000

static struct kit *kit;
static DAT_HANDLE made[MANY];

static DAT_RETURN make_pz(DAT_HANDLE *handle)
{
	return dat_pz_create(kit->ia, handle);
}

static DAT_RETURN make_queue(DAT_HANDLE *handle)
{
	return dat_evd_create(kit->ia, 4096, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, handle);
}

static DAT_RETURN make_endpoint(DAT_HANDLE *handle)
{
	return dat_ep_create(kit->ia, kit->pz, kit->recv_evd, kit->request_evd, kit->connect_evd,
			     NULL, handle);
}

static DAT_RETURN make_region(DAT_HANDLE *handle)
{
	DAT_REGION_DESCRIPTION region = { .for_va = kit->buffer };
	DAT_LMR_CONTEXT lmr_context;
	DAT_RMR_CONTEXT rmr_context;
	DAT_VADDR address;
	DAT_VLEN len;

	return dat_lmr_create(kit->ia, DAT_MEM_TYPE_VIRTUAL, region, BUFFER_LEN, kit->pz,
			      ALL_PRIVILEGES, DAT_VA_TYPE_VA, handle, &lmr_context, &rmr_context,
			      &len, &address);
}

static DAT_RETURN make_srq(DAT_HANDLE *handle)
{
	DAT_SRQ_ATTR attr = { .max_recv_dtos = 64, .max_recv_iov = 1 };

	return dat_srq_create(kit->ia, kit->pz, &attr, handle);
}

static DAT_RETURN make_window(DAT_HANDLE *handle)
{
	return dat_rmr_create(kit->pz, handle);
}

static DAT_RETURN make_notifier(DAT_HANDLE *handle)
{
	return dat_cno_create(kit->ia, DAT_OS_WAIT_PROXY_AGENT_NULL, handle);
}

static DAT_RETURN make_service(DAT_HANDLE *handle)
{
	DAT_CONN_QUAL qualifier;

	return dat_psp_create_any(kit->ia, &qualifier, kit->cr_evd, DAT_PSP_CONSUMER_FLAG, handle);
}

static const struct {
	const char *name;
	DAT_RETURN (*make)(DAT_HANDLE *handle);
	DAT_RETURN (*destroy)(DAT_HANDLE handle);
} kinds[] = {
	{ "dat_pz_create", make_pz, dat_pz_free },
	{ "dat_evd_create", make_queue, dat_evd_free },
	{ "dat_ep_create", make_endpoint, dat_ep_free },
	{ "dat_lmr_create", make_region, dat_lmr_free },
	{ "dat_srq_create", make_srq, dat_srq_free },
	{ "dat_rmr_create", make_window, dat_rmr_free },
	{ "dat_cno_create", make_notifier, dat_cno_free },
	{ "dat_psp_create_any", make_service, dat_psp_free },
};

/* Makes each create call until the call is refused. */
static void memory_create(void)
{
	struct pair pair;

	pair_open(&pair);
	kit = &pair.passive;
	pair_connect(&pair);
	for (size_t at = 0; at < sizeof(kinds) / sizeof(kinds[0]); at++) {
		unsigned count = 0;

		take_all_memory();
		while (count < MANY && !is_short(kinds[at].name, kinds[at].make(&made[count])))
			count++;
		one_message(&pair, (unsigned)at);
		give_all_memory_back();
		printf("MADE %u by %s\n", count, kinds[at].name);
		expect(count < MANY);
		while (count > 0)
			must(kinds[at].name, kinds[at].destroy(made[--count]));
		/* Memory is available again. */
		must(kinds[at].name, kinds[at].make(&made[0]));
		must(kinds[at].name, kinds[at].destroy(made[0]));
		one_message(&pair, (unsigned)at + 100);
	}
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* Opens a second adapter with its objects. */
static void memory_open(void)
{
	DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
	struct pair pair;
	DAT_IA_HANDLE ia;

	pair_open(&pair);
	take_all_memory();
	for (unsigned count = 0; count < 1000; count++) {
		async_evd = DAT_HANDLE_NULL;
		if (is_short("dat_ia_open", dat_ia_open("iwarp-lo", 8, &async_evd, &ia)))
			break;
		expect(count < 999);
	}
	give_all_memory_back();
	pair_connect(&pair);
	one_message(&pair, 1);
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* Posts receives and sends until their queues are full or memory is exhausted. */
static void memory_post(void)
{
	struct pair pair;
	DAT_LMR_TRIPLET part;
	unsigned sent = 0, received = 0, posted = 0;
	DAT_RETURN ret;

	pair_open(&pair);
	pair_connect(&pair);
	take_all_memory();
	part = kit_part(&pair.passive, 0, PART);
	while (posted < 40 && !is_short("dat_ep_post_recv",
					dat_ep_post_recv(pair.passive.ep, 1, &part, cookie_of(0),
							 DAT_COMPLETION_DEFAULT_FLAG)))
		posted++;
	part = kit_part(&pair.active, 0, PART);
	fill(pair.active.buffer, PART, 5);
	while (sent < posted) {
		ret = dat_ep_post_send(pair.active.ep, 1, &part, cookie_of(0),
				       DAT_COMPLETION_DEFAULT_FLAG);
		if (is_short("dat_ep_post_send", ret))
			break;
		sent++;
	}
	for (; received < sent; received++) {
		expect(completion(pair.passive.recv_evd, WAIT_MS, "receive") == PART);
		completion(pair.active.request_evd, WAIT_MS, "send");
	}
	verify("message", pair.passive.buffer, sent ? PART : 0, 5);
	give_all_memory_back();
	printf("POSTED %u receives, %u sends\n", posted, sent);
	for (; received < posted; received++) {
		send_part(&pair.active, 0, PART, WAIT_MS);
		completion(pair.passive.recv_evd, WAIT_MS, "receive");
	}
	one_message(&pair, 9);
	pair_disconnect(&pair);
	pair_close(&pair);
}

static const struct trial trials[] = {
	{ "descriptors-open", descriptors_open },
	{ "descriptors-connect", descriptors_connect },
	{ "descriptors-accept", descriptors_accept },
	{ "descriptors-wait", descriptors_wait },
	{ "memory-create", memory_create },
	{ "memory-open", memory_open },
	{ "memory-post", memory_post },
};

int main(int argc, char **argv)
{
	getrlimit(RLIMIT_NOFILE, &whole);
	return run_trial(trials, sizeof(trials) / sizeof(trials[0]), argc, argv);
}
