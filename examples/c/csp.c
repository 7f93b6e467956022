/*
 * A common service point: the server listens at an address and a port, and any iWARP peer can
 * connect to it, with dat_ep_common_connect or without DAT at all.
 *
 *   csp IA            (the server)
 *   csp IA ADDRESS    (the client)
 */
#define _GNU_SOURCE
#include <sys/socket.h>

#include "example.h"

static void serve(struct example *ex)
{
	DAT_COMM tcp = { .domain = AF_INET, .type = SOCK_STREAM, .protocol = IPPROTO_TCP };
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(SERVICE) };
	DAT_CSP_HANDLE csp;
	DAT_CSP_PARAM param;

	post_recv(ex, 0);
	must("dat_csp_create",
	     dat_csp_create(ex->ia, &tcp, (DAT_IA_ADDRESS_PTR)&here, ex->cr_evd, &csp));
	must("dat_csp_query", dat_csp_query(csp, DAT_CSP_FIELD_ALL, &param));
	printf("listening at port %u\n",
	       ntohs(((struct sockaddr_in *)param.address_ptr)->sin_port));
	fflush(stdout);
	accept_one(ex, ex->ep);
	must("dat_csp_free", dat_csp_free(csp));
	printf("the client says \"%s\"\n", received(ex));
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED, "the end");
}

static void run_client(struct example *ex, const char *host)
{
	struct sockaddr_in there = address_of(host);

	there.sin_port = htons(SERVICE);
	must("dat_ep_common_connect",
	     dat_ep_common_connect(ex->ep, (DAT_IA_ADDRESS_PTR)&there, PATIENCE_US, 0, NULL));
	expect(ex->connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED, "the connection");
	send_text(ex, "found you by address and port");
	disconnect(ex);
}

int main(int argc, char **argv)
{
	return run(argc, argv, serve, run_client);
}
