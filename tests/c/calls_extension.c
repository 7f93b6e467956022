/*
 * Operations of the IB extension: counters that are stopped, and the query of an adapter that is
 * not open.
 */
#include "pair.h"

#include <netinet/in.h>

#include <dat2/dat_ib_extensions.h>

static DAT_UINT64 request_events(struct kit *kit)
{
	DAT_UINT64 value = 0;

	must("dat_ib_query_counters",
	     dat_ib_query_counters(kit->ia, DCNT_IA_CM_REQ_RX, &value, 0));
	return value;
}

static void stop_counters(void)
{
	struct pair pair;

	pair_open(&pair);
	pair_connect(&pair);
	expect(request_events(&pair.passive) == 1);
	must("dat_ib_stop_counter", dat_ib_stop_counter(pair.passive.ia, DCNT_IA_CM));
	pair_disconnect(&pair);
	must("dat_ep_reset", dat_ep_reset(pair.active.ep));
	must("dat_ep_reset", dat_ep_reset(pair.passive.ep));
	pair_connect(&pair);
	expect(request_events(&pair.passive) == 1);
	must("dat_ib_start_counter", dat_ib_start_counter(pair.passive.ia, DCNT_IA_CM));
	expect(request_events(&pair.passive) == 0);
	must_refuse("dat_ib_start_counter", dat_ib_start_counter(pair.passive.ia, 3),
		    DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	pair_close(&pair);
}

static void open_query(void)
{
	struct kit kit;
	DAT_IA_ATTR attr, asked;
	DAT_PROVIDER_ATTR provider;
	DAT_IA_HANDLE query;

	kit_open(&kit, "iwarp-lo");
	must("dat_ia_query", dat_ia_query(kit.ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	must("dat_ib_open_query",
	     dat_ib_open_query("iwarp-lo", &query, DAT_IA_FIELD_ALL, &asked,
			       (DAT_PROVIDER_ATTR_MASK)DAT_PROVIDER_FIELD_ALL, &provider));
	expect(query != DAT_HANDLE_NULL && asked.max_eps == attr.max_eps);
	expect(strcmp(provider.provider_name, "iwarp-lo") == 0);
	must("dat_ib_close_query", dat_ib_close_query(query));
	must_refuse("dat_ib_open_query",
		    dat_ib_open_query("nobody", &query, DAT_IA_FIELD_ALL, &asked,
				      (DAT_PROVIDER_ATTR_MASK)0, NULL),
		    DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
	kit_close(&kit);
	printf("PASSED\n");
}

static const struct trial TRIALS[] = {
	{ "stop-counters", stop_counters },
	{ "open-query", open_query },
};

TRIAL_MAIN(TRIALS)
