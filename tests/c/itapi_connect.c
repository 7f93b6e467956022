/*
 * IT-API: listening, connecting, answering requests, the end of a connection, and the conversion of
 * a socket.
 */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "itapi_kit.h"

/* States and events of a connection from the request to the reset, twice with the same ends. */
static void life(void)
{
	struct pair pair;
	it_ep_param_t param;
	it_event_t event;

	pair_open(&pair);
	for (int round = 0; round < 2; round++) {
		expect(state(pair.active.ep) == IT_EP_STATE_UNCONNECTED);
		event = request(&pair, "question", 8);
		expect(event.conn_req.private_data_present);
		expect(!memcmp(event.conn_req.private_data, "question", 9));
		expect(event.conn_req.conn_qual.type == IT_IANA_PORT);
		expect(event.conn_req.conn_qual.conn_qual.port == pair.qualifier.conn_qual.port);
		expect(event.conn_req.source_addr.addr_type == IT_IPV4);
		expect(state(pair.active.ep) == IT_EP_STATE_ACTIVE1_CONNECTION_PENDING);
		must(it_ep_accept(pair.passive.ep, event.conn_req.cn_est_id,
				  (const unsigned char *)"answer", 6));
		answers(IT_ERR_INVALID_CN_EST_ID,
			it_reject(event.conn_req.cn_est_id, NULL, 0));
		event = next_of(pair.active.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
		expect(event.conn.private_data_present);
		expect(!memcmp(event.conn.private_data, "answer", 7));
		next_of(pair.passive.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
		expect(state(pair.active.ep) == IT_EP_STATE_CONNECTED);
		expect(state(pair.passive.ep) == IT_EP_STATE_CONNECTED);
		must(it_ep_query(pair.active.ep, IT_EP_PARAM_ALL, &param));
		expect(param.dst_path.remote.iwarp.ip_vers == IT_IP_VERS_IPV4);
		expect(param.dst_path.u.iwarp.raddr.ipv4.s_addr ==
		       path_to(&pair.active).remote.iwarp.raddr.ipv4.s_addr);
		answers(IT_ERR_CANNOT_RESET, it_ep_reset(pair.active.ep));
		answers(IT_ERR_INVALID_PDATA_LENGTH,
			it_ep_disconnect(pair.active.ep, (const unsigned char *)"x", 1));
		pair_disconnect(&pair);
		expect(state(pair.active.ep) == IT_EP_STATE_NONOPERATIONAL);
		must(it_ep_reset(pair.active.ep));
		must(it_ep_reset(pair.passive.ep));
	}
	pair_close(&pair);
}

/* Both ends exchange a message and end the connection. */
static void use(struct pair *pair)
{
	post_recv(&pair->passive, 0, 100, 1);
	post_send(&pair->active, 0, 8, 2, NOTIFIED);
	completed(pair->active.request, IT_DTO_SEND_CMPL_EVENT, pair->active.ep, 2,
		  IT_DTO_SUCCESS);
	completed(pair->passive.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair->passive.ep, 1,
		  IT_DTO_SUCCESS);
	pair_disconnect(pair);
}

/* Waits for a child, which must succeed. */
static void join(pid_t child)
{
	int status = 1;

	expect(child > 0 && waitpid(child, &status, 0) == child);
	expect(status == 0);
}

/*
 * The child of a fork has adapters of its own. The handles of its parent are invalid there, and the
 * connection of its parent stays.
 */
static void forked(void)
{
	struct pair pair, own;
	pid_t child;

	pair_open(&pair);
	pair_connect(&pair);
	child = fork();
	if (child == 0) {
		expect(it_ep_disconnect(pair.active.ep, NULL, 0) != IT_SUCCESS);
		pair_open(&own);
		pair_connect(&own);
		use(&own);
		pair_close(&own);
		/* The objects of the parent are no leak of the child. */
		_exit(0);
	}
	join(child);
	expect(state(pair.active.ep) == IT_EP_STATE_CONNECTED);
	use(&pair);
	pair_close(&pair);
}

/* A rejected request is an event with the peer's data, and the listener serves the next one. */
static void reject(void)
{
	struct pair pair;
	it_event_t event;

	pair_open(&pair);
	event = request(&pair, NULL, 0);
	/* RoCE devices fill private data up with zeros. */
	expect(!event.conn_req.private_data_present || !event.conn_req.private_data[0]);
	must(it_reject(event.conn_req.cn_est_id, (const unsigned char *)"no", 2));
	event = next_of(pair.active.cm_msg, IT_CM_MSG_CONN_PEER_REJECT_EVENT);
	expect(event.conn.ep == pair.active.ep);
	expect(event.conn.private_data_present && !memcmp(event.conn.private_data, "no", 3));
	expect(state(pair.active.ep) == IT_EP_STATE_NONOPERATIONAL);
	must(it_ep_reset(pair.active.ep));
	pair_connect(&pair);
	pair_disconnect(&pair);
	pair_close(&pair);
}

/* Without a listener the event says that no peer has answered. */
static void no_listener(void)
{
	struct pair pair;
	it_event_t event;
	it_path_t path;

	pair_open(&pair);
	path = path_to(&pair.active);
	must(it_listen_free(pair.listener));
	answers(IT_ERR_INVALID_LISTEN, it_listen_free(pair.listener));
	must(it_ep_connect(pair.active.ep, &path, NULL, &pair.qualifier, IT_CONNECT_FLAG_TWO_WAY,
			   NULL, 0));
	event = next_of(pair.active.cm_msg, IT_CM_MSG_CONN_NONPEER_REJECT_EVENT);
	expect(event.conn.ep == pair.active.ep);
	expect(state(pair.active.ep) == IT_EP_STATE_NONOPERATIONAL);
	end_close(&pair.active);
	end_close(&pair.passive);
}

/* A peer that closes its adapter ends the connection, and its work is flushed. */
static void peer_closes(void)
{
	struct pair pair;
	it_event_t event;

	pair_open(&pair);
	pair_connect(&pair);
	post_recv(&pair.active, 0, 64, 7);
	must(it_ia_free(pair.passive.ia));
	answers(IT_ERR_INVALID_EP, it_ep_free(pair.passive.ep));
	answers(IT_ERR_INVALID_PZ, it_pz_free(pair.passive.pz));
	answers(IT_ERR_INVALID_EVD, it_evd_free(pair.passive.recv));
	event = next(pair.active.cm_msg);
	expect(event.event_number == IT_CM_MSG_CONN_DISCONNECT_EVENT ||
	       event.event_number == IT_CM_MSG_CONN_BROKEN_EVENT);
	completed(pair.active.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair.active.ep, 7,
		  IT_DTO_ERR_FLUSHED);
	expect(state(pair.active.ep) == IT_EP_STATE_NONOPERATIONAL);
	end_close(&pair.active);
	free(pair.passive.buffer);
}

/* A message that is longer than its receive breaks the connection at both ends. */
static void broken(void)
{
	struct pair pair;

	pair_open(&pair);
	pair_connect(&pair);
	post_recv(&pair.passive, 0, 8, 1);
	post_send(&pair.active, 0, 64, 2, NOTIFIED);
	completed(pair.passive.recv, IT_DTO_RC_RECV_CMPL_EVENT, pair.passive.ep, 1,
		  IT_DTO_ERR_LOCAL_LENGTH);
	next_of(pair.passive.cm_msg, IT_CM_MSG_CONN_BROKEN_EVENT);
	next_of(pair.active.cm_msg, IT_CM_MSG_CONN_BROKEN_EVENT);
	pair_close(&pair);
}

/* Listening at a port of the program's choice, and passing a request to another listener. */
static void listen_and_hand_off(void)
{
	struct pair pair;
	it_listen_handle_t second, third;
	it_listen_param_t param;
	it_conn_qual_t other, taken;
	it_evd_handle_t requests;
	it_event_t event;

	pair_open(&pair);
	requests = make_sevd(pair.passive.ia, IT_CM_REQ_EVENT_STREAM, NO_AEVD);
	memset(&other, 0, sizeof(other));
	other.type = IT_IANA_LR_PORT;
	other.conn_qual.lr_port.local = htons(20517);
	must(it_listen_create(pair.passive.ia, 0, requests, IT_LISTEN_CONN_QUAL_INPUT, &other,
			      &second));
	must(it_listen_query(second, IT_LISTEN_PARAM_ALL, &param));
	expect(param.ia_handle == pair.passive.ia && param.connect_evd == requests);
	expect(param.connect_qual.conn_qual.lr_port.local == htons(20517));
	taken = other;
	answers(IT_ERR_CONN_QUAL_BUSY,
		it_listen_create(pair.passive.ia, 0, requests, IT_LISTEN_CONN_QUAL_INPUT, &taken,
				 &third));
	answers(IT_ERR_INVALID_SPIGOT,
		it_listen_create(pair.passive.ia, 1, requests, IT_LISTEN_CONN_QUAL_INPUT, &taken,
				 &third));
	answers(IT_ERR_INVALID_CONN_EVD,
		it_listen_create(pair.passive.ia, 0, pair.passive.recv, IT_LISTEN_CONN_QUAL_INPUT,
				 &taken, &third));
	taken.type = IT_IB_SERVICEID;
	answers(IT_ERR_INVALID_CONN_QUAL,
		it_listen_create(pair.passive.ia, 0, requests, IT_LISTEN_CONN_QUAL_INPUT, &taken,
				 &third));
	event = request(&pair, "passed on", 9);
	must(it_handoff(&other, 0, event.conn_req.cn_est_id));
	answers(IT_ERR_INVALID_CN_EST_ID, it_handoff(&other, 0, event.conn_req.cn_est_id));
	event = next_of(requests, IT_CM_REQ_CONN_REQUEST_EVENT);
	expect(!memcmp(event.conn_req.private_data, "passed on", 10));
	must(it_ep_accept(pair.passive.ep, event.conn_req.cn_est_id, NULL, 0));
	next_of(pair.active.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	must(it_listen_free(second));
	pair_close(&pair);
}

/* Arguments of it_ep_connect and it_ep_accept that are refused. */
static void refused(void)
{
	struct pair pair;
	unsigned char data[IT_MAX_PRIV_DATA + 1] = { 0 };
	it_conn_qual_t wrong;
	it_event_t event;
	it_path_t path;

	pair_open(&pair);
	path = path_to(&pair.active);
	answers(IT_ERR_INVALID_CN_EST_FLAGS,
		it_ep_connect(pair.active.ep, &path, NULL, &pair.qualifier,
			      IT_CONNECT_FLAG_THREE_WAY, NULL, 0));
	answers(IT_ERR_INVALID_PDATA_LENGTH,
		it_ep_connect(pair.active.ep, &path, NULL, &pair.qualifier,
			      IT_CONNECT_FLAG_TWO_WAY, data, sizeof(data)));
	answers(IT_ERR_FAULT, it_ep_connect(pair.active.ep, NULL, NULL, &pair.qualifier,
					    IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
	answers(IT_ERR_INVALID_EP,
		it_ep_connect((it_ep_handle_t)(void *)pair.active.pz, &path, NULL,
			      &pair.qualifier, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
	wrong = pair.qualifier;
	wrong.type = IT_VIA_DISCRIMINATOR;
	answers(IT_ERR_INVALID_CONN_QUAL,
		it_ep_connect(pair.active.ep, &path, NULL, &wrong, IT_CONNECT_FLAG_TWO_WAY, NULL,
			      0));
	path.remote.iwarp.ip_vers = (it_ip_vers_t)9;
	answers(IT_ERR_INVALID_ADDRESS,
		it_ep_connect(pair.active.ep, &path, NULL, &pair.qualifier,
			      IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
	answers(IT_ERR_INVALID_EP_STATE, it_ep_disconnect(pair.active.ep, NULL, 0));
	answers(IT_ERR_INVALID_CN_EST_ID, it_ep_accept(pair.passive.ep, 12345, NULL, 0));
	event = request(&pair, NULL, 0);
	answers(IT_ERR_INVALID_PDATA_LENGTH,
		it_ep_accept(pair.passive.ep, event.conn_req.cn_est_id, data, sizeof(data)));
	/* A refused answer leaves the request. */
	must(it_ep_accept(pair.passive.ep, event.conn_req.cn_est_id, NULL, 0));
	next_of(pair.active.cm_msg, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
	path = path_to(&pair.passive);
	answers(IT_ERR_INVALID_EP_STATE,
		it_ep_connect(pair.passive.ep, &path, NULL, &pair.qualifier,
			      IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
	pair_close(&pair);
}

static const struct trial trials[] = {
	{ "life", life },
	{ "reject", reject },
	{ "no-listener", no_listener },
	{ "peer-closes", peer_closes },
	{ "broken", broken },
	{ "listen-and-hand-off", listen_and_hand_off },
	{ "fork", forked },
	{ "refused", refused },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return run_trial(argc, argv, trials);
}
