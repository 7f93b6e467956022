/*
 * dat_cr_handoff to service points that cannot take the request. Another adapter of this process
 * listens as another process does, but the request does not move to it.
 */
#include "pair.h"

static void refused_and_kept(DAT_CR_HANDLE cr, DAT_CONN_QUAL qualifier)
{
	must_refuse("dat_cr_handoff", dat_cr_handoff(cr, qualifier), DAT_INVALID_PARAMETER,
		    DAT_INVALID_ARG2);
}

static void own_process(void)
{
	DAT_CR_ARRIVAL_EVENT_DATA arrival;
	DAT_CONN_QUAL other;
	struct pair pair;
	DAT_PSP_HANDLE psp;
	DAT_CR_HANDLE cr;
	DAT_EVENT event;

	pair_open(&pair);
	must("dat_psp_create_any", dat_psp_create_any(pair.active.ia, &other, pair.active.cr_evd,
						      DAT_PSP_CONSUMER_FLAG, &psp));
	begin_connect(&pair, pair.active.ep);
	cr = next_request(&pair.passive, &arrival);
	refused_and_kept(cr, other);
	refused_and_kept(cr, 0);
	must("dat_psp_free", dat_psp_free(psp));
	refused_and_kept(cr, other);
	must("dat_cr_accept", dat_cr_accept(cr, pair.passive.ep, 0, NULL));
	expect_event(pair.active.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
	expect_event(pair.passive.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
	one_message(&pair, 1);
	pair_disconnect(&pair);
	pair_close(&pair);
}

static const struct trial trials[] = {
	{ "own-process", own_process },
};

TRIAL_MAIN(trials)
