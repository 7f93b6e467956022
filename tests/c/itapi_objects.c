/*
 * IT-API: adapters, handles, addresses, attributes of endpoints, and the calls that are refused.
 */
#include "itapi_kit.h"

/* The list has the adapter, which opens in each version, and says what it can do. */
static void adapters(void)
{
	it_interface_t list[8];
	size_t count = 8, total = 0;
	it_ia_info_t *info;
	it_ia_handle_t ia;
	int found = 0;

	it_interface_list(list, &count, &total);
	expect(count == total && total >= 1);
	for (size_t index = 0; index < count; index++)
		found += !strcmp(list[index].name, adapter());
	expect(found == 1 && list[0].major_version == 2);
	count = 0;
	it_interface_list(list, &count, &total);
	expect(count == 0 && total >= 1);
	it_interface_list(NULL, NULL, &total);
	answers(IT_ERR_INVALID_NAME, it_ia_create("no such adapter", 2, 1, &ia));
	answers(IT_ERR_INVALID_NAME, it_ia_create(NULL, 2, 1, &ia));
	answers(IT_ERR_FAULT, it_ia_create(adapter(), 2, 1, NULL));
	answers(IT_ERR_INVALID_MAJOR_VERSION, it_ia_create(adapter(), 3, 0, &ia));
	answers(IT_ERR_INVALID_MINOR_VERSION, it_ia_create(adapter(), 2, 2, &ia));
	must(it_ia_create(adapter(), 1, 0, &ia));
	must(it_ia_free(ia));
	must(it_ia_create(adapter(), 2, 0, &ia));
	must(it_ia_query(ia, &info));
	expect(!strcmp(info->ia_name, adapter()));
	expect(info->api_major_version == 2 && info->api_minor_version == 1);
	expect(info->supported_service_types == IT_RC_SERVICE && info->num_spigots == 1);
	expect(info->spigot_info[0].num_net_addr == 1 && info->spigot_info[0].spigot_id == 0);
	expect(info->spigot_info[0].net_addr[0].addr.ipv4.s_addr == htonl(INADDR_LOOPBACK));
	expect(info->spigot_info[0].max_rc_send_len >= BUFFER_LEN);
	expect(info->transport_type == IT_IWARP_TCP_TRANSPORT && info->socket_conversion_support);
	expect(info->srq_support && info->atomic_support && info->addr_mode_relative_support);
	expect(info->rmr_types_supported & IT_RMR_TYPE_WIDE);
	expect(info->connect_private_data_len == IT_MAX_PRIV_DATA);
	expect(info->disconnect_private_data_len == 0 && !info->three_way_handshake_support);
	expect(!info->affiliated_err_evd && !info->unaffiliated_err_evd);
	it_ia_info_free(info);
	it_ia_info_free(NULL);
	must(it_ia_free(ia));
	answers(IT_ERR_INVALID_IA, it_ia_free(ia));
	answers(IT_ERR_INVALID_IA, it_ia_query(ia, &info));
}

/* Each handle has its kind and a word of the program; numbers that are no handles have neither. */
static void handles(void)
{
	struct pair pair;
	it_handle_type_enum_t type;
	it_context_t context;
	it_srq_handle_t srq;
	it_rmr_handle_t rmr;
	it_pz_param_t param;

	pair_open(&pair);
	must(it_srq_create(pair.passive.pz, 1, 4, &srq));
	must(it_rmr_create20(pair.passive.pz, IT_RMR_TYPE_DEFAULT, &rmr));
	struct { it_handle_t handle; it_handle_type_enum_t type; } all[] = {
		{ pair.active.ia, IT_HANDLE_TYPE_IA },	 { pair.active.pz, IT_HANDLE_TYPE_PZ },
		{ pair.active.ep, IT_HANDLE_TYPE_EP },	 { pair.active.recv, IT_HANDLE_TYPE_EVD },
		{ pair.active.lmr, IT_HANDLE_TYPE_LMR }, { pair.listener, IT_HANDLE_TYPE_LISTEN },
		{ srq, IT_HANDLE_TYPE_SRQ },		 { rmr, IT_HANDLE_TYPE_RMR },
	};
	for (size_t index = 0; index < sizeof(all) / sizeof(all[0]); index++) {
		must(it_get_handle_type(all[index].handle, &type));
		expect(type == all[index].type);
		answers(IT_ERR_NO_CONTEXT, it_get_consumer_context(all[index].handle, &context));
		context.index = 100 + index;
		must(it_set_consumer_context(all[index].handle, context));
	}
	for (size_t index = 0; index < sizeof(all) / sizeof(all[0]); index++) {
		must(it_get_consumer_context(all[index].handle, &context));
		expect(context.index == 100 + index);
	}
	void *wrong[] = { NULL, &pair, (void *)-1, (void *)"text", (void *)(intptr_t)0x10 };
	for (size_t index = 0; index < sizeof(wrong) / sizeof(wrong[0]); index++) {
		answers(IT_ERR_INVALID_HANDLE, it_get_handle_type(wrong[index], &type));
		answers(IT_ERR_INVALID_HANDLE, it_set_consumer_context(wrong[index], context));
		answers(IT_ERR_INVALID_PZ, it_pz_free((it_pz_handle_t)wrong[index]));
		answers(IT_ERR_INVALID_EVD, it_evd_free((it_evd_handle_t)wrong[index]));
		answers(IT_ERR_INVALID_EP, it_ep_free((it_ep_handle_t)wrong[index]));
	}
	must(it_pz_query(pair.active.pz, IT_PZ_PARAM_ALL, &param));
	expect(param.ia == pair.active.ia);
	answers(IT_ERR_PZ_BUSY, it_pz_free(pair.active.pz));
	answers(IT_ERR_EVD_BUSY, it_evd_free(pair.active.recv));
	must(it_srq_free(srq));
	must(it_rmr_free(rmr));
	pair_close(&pair);
}

/* Conversion of addresses and of byte order. */
static void addresses(void)
{
	it_net_addr_t four, six, back;

	memset(&four, 0, sizeof(four));
	four.addr_type = IT_IPV4;
	four.addr.ipv4.s_addr = htonl(0xC0000201);
	must(it_convert_net_addr(&four, IT_IPV6, &six));
	expect(six.addr_type == IT_IPV6 && IN6_IS_ADDR_V4MAPPED(&six.addr.ipv6));
	must(it_convert_net_addr(&six, IT_IPV4, &back));
	expect(back.addr_type == IT_IPV4 && back.addr.ipv4.s_addr == four.addr.ipv4.s_addr);
	must(it_convert_net_addr(&four, IT_IB_GID, &six));
	expect(six.addr_type == IT_IB_GID && six.addr.gid.s6_addr[15] == 1);
	inet_pton(AF_INET6, "2001:db8::1", &six.addr.ipv6);
	answers(IT_ERR_INVALID_CONVERSION, it_convert_net_addr(&six, IT_IPV4, &back));
	six.addr_type = IT_VIA_HOSTADDR;
	answers(IT_ERR_INVALID_NETADDR, it_convert_net_addr(&six, IT_IPV4, &back));
	expect(it_ntoh64(it_hton64(0x0102030405060708)) == 0x0102030405060708);
	expect(*(unsigned char *)&(uint64_t){ it_hton64(1) } == 0);
}

/* Attributes of an endpoint: limits of the adapter, and what can be modified. */
static void attributes_of_endpoints(void)
{
	struct pair pair;
	it_ep_attributes_t attr = attributes();
	it_ep_param_t param;
	it_ep_handle_t ep;

	pair_open(&pair);
	struct end *end = &pair.active;
#define create(flags) \
	it_ep_rc_create(end->pz, end->request, end->recv, end->cm_msg, flags, &attr, &ep)
	attr.max_request_dtos = 1 << 30;
	answers(IT_ERR_RESOURCE_REQ_DTO, create(IT_EP_NO_FLAG));
	attr = attributes();
	attr.max_recv_segments = 1 << 30;
	answers(IT_ERR_RESOURCE_RSEG, create(IT_EP_NO_FLAG));
	attr = attributes();
	attr.srv.rc.rdma_read_ord = 1 << 30;
	answers(IT_ERR_RESOURCE_ORD, create(IT_EP_NO_FLAG));
	attr = attributes();
	answers(IT_ERR_INVALID_FLAGS, create((it_ep_rc_creation_flags_t)8));
	answers(IT_ERR_INVALID_REQ_EVD,
		it_ep_rc_create(end->pz, end->cm_msg, end->recv, end->cm_msg, IT_EP_NO_FLAG, &attr,
				&ep));
	answers(IT_ERR_INVALID_CONN_EVD,
		it_ep_rc_create(end->pz, end->request, end->recv, pair.passive.cm_msg,
				IT_EP_NO_FLAG, &attr, &ep));
	must(create(IT_EP_REUSEADDR));
	must(it_ep_query(ep, IT_EP_PARAM_ALL, &param));
	expect(param.ia == end->ia && param.pz == end->pz && param.service_type == IT_RC_SERVICE);
	expect(param.request_sevd == end->request && param.recv_sevd == end->recv);
	expect(param.connect_sevd == end->cm_msg && param.attr.max_recv_dtos == 16);
	expect(param.attr.srv.rc.rdma_read_ird == 4 && param.attr.srv.rc.rdma_read_enable);
	attr.srv.rc.rdma_read_ird = 2;
	attr.max_recv_dtos = 8;
	must(it_ep_modify(ep, (it_ep_param_mask_t)(IT_EP_PARAM_MAX_IRD | IT_EP_PARAM_MAX_RECV_DTO),
			  &attr));
	must(it_ep_query(ep, IT_EP_PARAM_ALL, &param));
	expect(param.attr.srv.rc.rdma_read_ird == 2 && param.attr.max_recv_dtos == 8);
	answers(IT_ERR_INVALID_MASK, it_ep_modify(ep, IT_EP_PARAM_PZ, &attr));
	answers(IT_ERR_INVALID_MASK, it_ep_modify(ep, IT_EP_PARAM_RDMA_RD_ENABLE, &attr));
	attr.max_request_dtos = 1 << 30;
	answers(IT_ERR_RESOURCE_REQ_DTO, it_ep_modify(ep, IT_EP_PARAM_MAX_REQ_DTO, &attr));
	must(it_ep_reset(ep));
	must(it_ep_free(ep));
	answers(IT_ERR_INVALID_EP, it_ep_query(ep, IT_EP_PARAM_ALL, &param));
	pair_connect(&pair);
	answers(IT_ERR_INVALID_EP_STATE,
		it_ep_modify(pair.active.ep, IT_EP_PARAM_MAX_IRD, &attr));
	pair_close(&pair);
}

/* Calls for datagrams and for privileged programs. */
static void unsupported(void)
{
	it_remote_ep_info_t info = { 0, 0 };
	it_addr_handle_t address;
	it_lmr_handle_t lmr;

	answers(IT_ERR_OP_NOT_SUPPORTED,
		it_address_handle_create(NULL, NULL, IT_AH_PATH_COMPLETE, &address));
	answers(IT_ERR_OP_NOT_SUPPORTED, it_ep_ud_create(NULL, NULL, NULL, NULL, 0, NULL));
	answers(IT_ERR_OP_NOT_SUPPORTED, it_post_sendto(NULL, NULL, 0, 0, NOTIFIED, NULL));
	answers(IT_ERR_OP_NOT_SUPPORTED, it_post_recvfrom(NULL, NULL, 0, 0, NOTIFIED));
	answers(IT_ERR_OP_NOT_SUPPORTED,
		it_ud_service_reply(0, IT_UD_SVC_EP_INFO_VALID, info, NULL, 0));
	answers(IT_ERR_PRIV_OPS_UNAVAILABLE,
		it_lmr_create_unlinked(NULL, 0, IT_LMR_FLAG_NONE, 0, &lmr));
	answers(IT_ERR_PRIV_OPS_UNAVAILABLE, it_lmr_unlink(NULL, NULL, 0, NOTIFIED));
	answers(IT_ERR_PRIV_OPS_UNAVAILABLE, it_mem_unmap(NULL, NULL, 0));
}

static const struct trial trials[] = {
	{ "adapters", adapters },
	{ "handles", handles },
	{ "addresses", addresses },
	{ "attributes-of-endpoints", attributes_of_endpoints },
	{ "unsupported", unsupported },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return run_trial(argc, argv, trials);
}
