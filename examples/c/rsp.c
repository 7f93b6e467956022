/*
 * A reserved service point: it listens for one client, for one endpoint. Private data is sent in
 * both directions.
 *
 *   rsp IA            (the server)
 *   rsp IA ADDRESS    (the client)
 */
#define _GNU_SOURCE
#include "example.h"

static char QUESTION[] = "a seat for one", ANSWER[] = "this way";

static void serve(struct example *ex)
{
	DAT_CR_ARRIVAL_EVENT_DATA arrival;
	DAT_EVENT event;
	DAT_RSP_HANDLE rsp;
	DAT_CR_PARAM param;

	post_recv(ex, 0);
	must("dat_rsp_create", dat_rsp_create(ex->ia, SERVICE, ex->ep, ex->cr_evd, &rsp));
	event = expect(ex->cr_evd, DAT_CONNECTION_REQUEST_EVENT, "a request");
	arrival = event.event_data.cr_arrival_event_data;
	check(arrival.sp_handle.rsp_handle == rsp, "the request is for this service point");
	must("dat_cr_query", dat_cr_query(arrival.cr_handle, DAT_CR_FIELD_ALL, &param));
	check(param.local_ep_handle == ex->ep, "the request has the reserved endpoint");
	printf("a client asks for \"%s\"\n", (char *)param.private_data);
	/* The request contains the endpoint, so the accept does not name it again. */
	must("dat_cr_accept",
	     dat_cr_accept(arrival.cr_handle, DAT_HANDLE_NULL, sizeof(ANSWER), ANSWER));
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, "the connection");
	must("dat_rsp_free", dat_rsp_free(rsp));
	printf("the client says \"%s\"\n", received(ex));
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
}

static void run_client(struct example *ex, const char *host)
{
	struct sockaddr_in there = address_of(host);
	DAT_EVENT event;

	must("dat_ep_connect",
	     dat_ep_connect(ex->ep, (DAT_IA_ADDRESS_PTR)&there, SERVICE, PATIENCE_US,
			    sizeof(QUESTION), QUESTION, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	event = expect(ex->connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, "the connection");
	printf("the server answers \"%s\"\n",
	       (char *)event.event_data.connect_event_data.private_data);
	send_text(ex, "thank you");
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
