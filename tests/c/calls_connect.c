/*
 * Calls for connections that OFA's library declares and lacks: common service points, handoff of a
 * request, connecting like another endpoint, counting receives.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "pair.h"

#include <dat2/dat_registry.h>

static const char HELLO[] = "common hello";

static in_port_t port_of(DAT_CSP_HANDLE csp)
{
	DAT_CSP_PARAM param;

	memset(&param, 0, sizeof(param));
	must("dat_csp_query", dat_csp_query(csp, DAT_CSP_FIELD_ALL, &param));
	expect(param.comm->type == SOCK_STREAM && param.evd_handle != DAT_HANDLE_NULL);
	return ((struct sockaddr_in *)param.address_ptr)->sin_port;
}

static void common_service_point(void)
{
	struct pair pair;
	DAT_COMM comm = { .domain = AF_INET, .type = SOCK_STREAM, .protocol = IPPROTO_TCP };
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct sockaddr_in there;
	DAT_CR_ARRIVAL_EVENT_DATA arrival;
	DAT_CSP_HANDLE csp, second;
	DAT_CR_PARAM cr;
	DAT_EVENT event;

	pair_open(&pair);
	must("dat_csp_create", dat_csp_create(pair.passive.ia, &comm, (DAT_SOCK_ADDR *)&any,
					      pair.passive.cr_evd, &csp));
	there = *(struct sockaddr_in *)ia_address(&pair.passive);
	must_refuse("dat_ep_common_connect",
		    dat_ep_common_connect(pair.active.ep, (DAT_SOCK_ADDR *)&there, WAIT_MS * 1000, 0,
					  NULL),
		    DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
	there.sin_port = port_of(csp);
	must_refuse("dat_csp_create",
		    dat_csp_create(pair.passive.ia, &comm, (DAT_SOCK_ADDR *)&there,
				   pair.passive.cr_evd, &second),
		    DAT_PORT_IN_USE, DAT_NO_SUBTYPE);
	must("dat_ep_common_connect",
	     dat_ep_common_connect(pair.active.ep, (DAT_SOCK_ADDR *)&there, WAIT_MS * 1000,
				   sizeof(HELLO), (DAT_PVOID)HELLO));
	next_request(&pair.passive, &arrival);
	expect(arrival.sp_handle.csp_handle == csp);
	expect(arrival.conn_qual == ntohs(there.sin_port));
	must("dat_cr_query", dat_cr_query(arrival.cr_handle, DAT_CR_FIELD_ALL, &cr));
	expect(cr.private_data_size == sizeof(HELLO));
	expect(memcmp(cr.private_data, HELLO, sizeof(HELLO)) == 0);
	must("dat_csp_free", dat_csp_free(csp));
	must("dat_cr_accept", dat_cr_accept(arrival.cr_handle, pair.passive.ep, 0, NULL));
	expect_event(pair.active.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
	expect_event(pair.passive.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
	one_message(&pair, 1);
	must_refuse("dat_csp_query", dat_csp_query(csp, DAT_CSP_FIELD_ALL, NULL), DAT_INVALID_HANDLE,
		    DAT_INVALID_HANDLE_CSP);
	pair_close(&pair);
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

static void handoff(void)
{
	struct pair pair;
	DAT_CR_ARRIVAL_EVENT_DATA arrival;
	DAT_CONN_QUAL other;
	DAT_PSP_HANDLE second;
	DAT_CR_HANDLE first_cr;
	DAT_CR_PARAM cr;

	pair_open(&pair);
	must("dat_psp_create_any", dat_psp_create_any(pair.passive.ia, &other, pair.passive.cr_evd,
						      DAT_PSP_CONSUMER_FLAG, &second));
	must("dat_ep_connect",
	     dat_ep_connect(pair.active.ep, ia_address(&pair.passive), pair.qualifier,
			    WAIT_MS * 1000, sizeof(HELLO), (DAT_PVOID)HELLO, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	first_cr = next_request(&pair.passive, &arrival);
	expect(arrival.sp_handle.psp_handle == pair.psp);
	must_refuse("dat_cr_handoff", dat_cr_handoff(first_cr, 1), DAT_INVALID_PARAMETER,
		    DAT_INVALID_ARG2);
	must("dat_cr_handoff", dat_cr_handoff(first_cr, other));
	must_refuse("dat_cr_query", dat_cr_query(first_cr, DAT_CR_FIELD_ALL, &cr),
		    DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
	{
		DAT_EVENT event;

		next_request(&pair.passive, &arrival);
		expect(arrival.sp_handle.psp_handle == second && arrival.conn_qual == other);
		must("dat_cr_query", dat_cr_query(arrival.cr_handle, DAT_CR_FIELD_ALL, &cr));
		expect(cr.private_data_size == sizeof(HELLO));
		expect(memcmp(cr.private_data, HELLO, sizeof(HELLO)) == 0);
		must("dat_cr_accept", dat_cr_accept(arrival.cr_handle, pair.passive.ep, 0, NULL));
		expect_event(pair.active.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
		expect_event(pair.passive.connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
	}
	one_message(&pair, 2);
	must("dat_psp_free", dat_psp_free(second));
	pair_close(&pair);
}

static void dup_connect(void)
{
	struct pair pair;
	DAT_EP_HANDLE active, passive;

	pair_open(&pair);
	active = make_ep(&pair.active, DAT_HANDLE_NULL);
	passive = make_ep(&pair.passive, DAT_HANDLE_NULL);
	must_refuse("dat_ep_dup_connect",
		    dat_ep_dup_connect(active, pair.active.ep, WAIT_MS * 1000, 0, NULL,
				       DAT_QOS_BEST_EFFORT),
		    DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
	pair_connect(&pair);
	must_refuse("dat_ep_dup_connect",
		    dat_ep_dup_connect(active, pair.active.ep, 0, 0, NULL, DAT_QOS_BEST_EFFORT),
		    DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	must_refuse("dat_ep_dup_connect",
		    dat_ep_dup_connect(active, pair.active.ep, WAIT_MS * 1000, 0, NULL,
				       DAT_QOS_PREMIUM),
		    DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
	must("dat_ep_dup_connect",
	     dat_ep_dup_connect(active, pair.active.ep, WAIT_MS * 1000, 0, NULL,
				DAT_QOS_BEST_EFFORT));
	establish(&pair, passive);
	one_message(&pair, 3);
	must("dat_ep_free", dat_ep_free(active));
	must("dat_ep_free", dat_ep_free(passive));
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

static void providers_related(void)
{
	DAT_HA_RELATIONSHIP answer;
	char name[] = "iwarp-lo", unregistered[] = "nobody";

	must("dat_registry_providers_related", dat_registry_providers_related(name, name, &answer));
	expect(answer == DAT_HA_UNKNOWN);
	must_refuse("dat_registry_providers_related",
		    dat_registry_providers_related(name, unregistered, &answer), DAT_PROVIDER_NOT_FOUND,
		    DAT_NAME_NOT_REGISTERED);
	printf("PASSED\n");
}

static const struct trial TRIALS[] = {
	{ "common-service-point", common_service_point },
	{ "common-service-point-gone", common_service_point_gone },
	{ "handoff", handoff },
	{ "dup-connect", dup_connect },
	{ "recv-query", recv_query },
	{ "status", status },
	{ "providers-related", providers_related },
};

TRIAL_MAIN(TRIALS)
