/*
 * Calls for connections: a common service point that was freed, the receives that an endpoint
 * holds, and the status of an endpoint.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "pair.h"

static in_port_t port_of(DAT_CSP_HANDLE csp)
{
	DAT_CSP_PARAM param;

	memset(&param, 0, sizeof(param));
	must("dat_csp_query", dat_csp_query(csp, DAT_CSP_FIELD_ALL, &param));
	expect(param.comm->type == SOCK_STREAM && param.evd_handle != DAT_HANDLE_NULL);
	return ((struct sockaddr_in *)param.address_ptr)->sin_port;
}

static void common_service_point_gone(void)
{
	struct pair pair;
	DAT_COMM comm = { .domain = AF_INET, .type = SOCK_STREAM, .protocol = IPPROTO_TCP };
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct sockaddr_in there;
	DAT_CSP_HANDLE csp;
	DAT_EVENT event;

	pair_open(&pair);
	comm.type = SOCK_DGRAM;
	must_refuse("dat_csp_create",
		    dat_csp_create(pair.passive.ia, &comm, (DAT_SOCK_ADDR *)&any,
				   pair.passive.cr_evd, &csp),
		    DAT_COMM_NOT_SUPPORTED, DAT_NO_SUBTYPE);
	comm.type = SOCK_STREAM;
	must("dat_csp_create", dat_csp_create(pair.passive.ia, &comm, (DAT_SOCK_ADDR *)&any,
					      pair.passive.cr_evd, &csp));
	there = *(struct sockaddr_in *)ia_address(&pair.passive);
	there.sin_port = port_of(csp);
	must_refuse("dat_ia_close", dat_ia_close(pair.passive.ia, DAT_CLOSE_GRACEFUL_FLAG),
		    DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
	must("dat_csp_free", dat_csp_free(csp));
	must("dat_ep_common_connect",
	     dat_ep_common_connect(pair.active.ep, (DAT_SOCK_ADDR *)&there, WAIT_MS * 1000, 0,
				   NULL));
	expect_event(pair.active.connect_evd, DAT_CONNECTION_EVENT_NON_PEER_REJECTED, &event);
	pair_close(&pair);
}

static void recv_query(void)
{
	struct pair pair;
	DAT_COUNT held, span;

	pair_open(&pair);
	for (size_t at = 0; at < 3; at++)
		post_recv(&pair.passive, at * PART, PART);
	must("dat_ep_recv_query", dat_ep_recv_query(pair.passive.ep, &held, &span));
	expect(held == 3 && span == 3);
	pair_connect(&pair);
	send_part(&pair.active, 0, PART, WAIT_MS);
	completion(pair.passive.recv_evd, WAIT_MS, "receive");
	must("dat_ep_recv_query", dat_ep_recv_query(pair.passive.ep, &held, NULL));
	expect(held == 2);
	must_refuse("dat_ep_set_watermark", dat_ep_set_watermark(pair.passive.ep, 1, 2),
		    DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RECV_WATERMARK);
	pair_close(&pair);
}

static void expect_status(struct kit *kit, DAT_EP_STATE state, DAT_BOOLEAN recv_idle)
{
	DAT_EP_STATE now;
	DAT_BOOLEAN recv, request;

	must("dat_ep_get_status", dat_ep_get_status(kit->ep, &now, &recv, &request));
	expect(now == state && recv == recv_idle && request == DAT_TRUE);
	must("dat_ep_get_status", dat_ep_get_status(kit->ep, NULL, NULL, NULL));
}

static void status(void)
{
	struct pair pair;

	pair_open(&pair);
	expect_status(&pair.passive, DAT_EP_STATE_UNCONNECTED, DAT_TRUE);
	post_recv(&pair.passive, 0, PART);
	expect_status(&pair.passive, DAT_EP_STATE_UNCONNECTED, DAT_FALSE);
	pair_connect(&pair);
	expect_status(&pair.passive, DAT_EP_STATE_CONNECTED, DAT_FALSE);
	send_part(&pair.active, 0, PART, WAIT_MS);
	completion(pair.passive.recv_evd, WAIT_MS, "receive");
	expect_status(&pair.passive, DAT_EP_STATE_CONNECTED, DAT_TRUE);
	pair_disconnect(&pair);
	expect_status(&pair.passive, DAT_EP_STATE_DISCONNECTED, DAT_TRUE);
	pair_close(&pair);
}

static const struct trial TRIALS[] = {
	{ "common-service-point-gone", common_service_point_gone },
	{ "recv-query", recv_query },
	{ "status", status },
};

TRIAL_MAIN(TRIALS)
