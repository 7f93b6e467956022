/*
 * The operations of the IB extension that work over iWARP: atomics and immediate data (RFC 7306),
 * counters that do not change, and queries of an adapter that is not open.
 */
#include "pair.h"

#include <netinet/in.h>

#include <dat2/dat_ib_extensions.h>

#define IMMEDIATE 0xC0FFEEu
#define WITH_ATOMICS (DAT_MEM_PRIV_FLAGS)(ALL_PRIVILEGES | (int)DAT_IB_MEM_PRIV_REMOTE_ATOMIC)

/* An end that lets its peer use atomics on its first eight bytes. */
static DAT_RMR_TRIPLET atomic_word(struct kit *kit, DAT_LMR_HANDLE *lmr)
{
	DAT_REGION_DESCRIPTION region = { .for_va = kit->buffer };
	DAT_RMR_TRIPLET word = { .virtual_address = (DAT_VADDR)(uintptr_t)kit->buffer,
				 .segment_length = 8 };

	must("dat_lmr_create",
	     dat_lmr_create(kit->ia, DAT_MEM_TYPE_VIRTUAL, region, PART, kit->pz, WITH_ATOMICS,
			    DAT_VA_TYPE_VA, lmr, NULL, &word.rmr_context, NULL, NULL));
	return word;
}

/* Waits for a successful atomic and returns the value that it has read. */
static DAT_UINT64 found(struct kit *kit, DAT_IB_DTOS operation, DAT_IB_EXT_TYPE type)
{
	DAT_DTO_COMPLETION_EVENT_DATA *dto;
	DAT_IB_EXTENSION_EVENT_DATA *extension;
	DAT_EVENT event;
	DAT_UINT64 value;

	expect_event(kit->request_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT, &event);
	dto = &event.event_data.dto_completion_event_data;
	extension = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
	expect(dto->status == DAT_DTO_SUCCESS && (int)dto->operation == (int)operation);
	expect(dto->transfered_length == 8 && dto->user_cookie.as_64 == 9);
	expect(extension->type == type && extension->status == DAT_OP_SUCCESS);
	memcpy(&value, kit->buffer, sizeof(value));
	return value;
}

static void atomics(void)
{
	struct pair pair;
	DAT_UINT64 value = 40, *word;
	DAT_LMR_TRIPLET local;
	DAT_RMR_TRIPLET remote;
	DAT_LMR_HANDLE lmr;

	pair_open(&pair);
	pair_connect(&pair);
	remote = atomic_word(&pair.passive, &lmr);
	word = (DAT_UINT64 *)pair.passive.buffer;
	memcpy(word, &value, sizeof(value));
	local = kit_part(&pair.active, 0, 8);
	must("dat_ib_post_fetch_and_add",
	     dat_ib_post_fetch_and_add(pair.active.ep, (DAT_UINT64)2, &local, cookie_of(9), &remote,
				       DAT_COMPLETION_DEFAULT_FLAG));
	expect(found(&pair.active, DAT_IB_DTO_FETCH_ADD, DAT_IB_FETCH_AND_ADD) == 40);
	expect(__atomic_load_n(word, __ATOMIC_SEQ_CST) == 42);
	/* The memory has another value than expected, so nothing changes. */
	must("dat_ib_post_cmp_and_swap",
	     dat_ib_post_cmp_and_swap(pair.active.ep, (DAT_UINT64)41, (DAT_UINT64)7, &local,
				      cookie_of(9), &remote, DAT_COMPLETION_DEFAULT_FLAG));
	expect(found(&pair.active, DAT_IB_DTO_CMP_SWAP, DAT_IB_CMP_AND_SWAP) == 42);
	must("dat_ib_post_cmp_and_swap",
	     dat_ib_post_cmp_and_swap(pair.active.ep, (DAT_UINT64)42, (DAT_UINT64)7, &local,
				      cookie_of(9), &remote, DAT_COMPLETION_DEFAULT_FLAG));
	expect(found(&pair.active, DAT_IB_DTO_CMP_SWAP, DAT_IB_CMP_AND_SWAP) == 42);
	expect(__atomic_load_n(word, __ATOMIC_SEQ_CST) == 7);
	remote.segment_length = 7;
	must_refuse("dat_ib_post_fetch_and_add",
		    dat_ib_post_fetch_and_add(pair.active.ep, (DAT_UINT64)2, &local, cookie_of(9),
					      &remote, DAT_COMPLETION_DEFAULT_FLAG),
		    DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
	must("dat_lmr_free", dat_lmr_free(lmr));
	pair_close(&pair);
}

static void immediate(void)
{
	struct pair pair;
	DAT_DTO_COMPLETION_EVENT_DATA *dto;
	DAT_IB_EXTENSION_EVENT_DATA *extension;
	DAT_LMR_TRIPLET local;
	DAT_RMR_TRIPLET remote;
	DAT_EVENT event;

	pair_open(&pair);
	pair_connect(&pair);
	fill(pair.active.buffer, PART, 5);
	local = kit_part(&pair.active, 0, PART);
	memset(&remote, 0, sizeof(remote));
	remote.virtual_address = (DAT_VADDR)(uintptr_t)(pair.passive.buffer + PART);
	remote.segment_length = PART;
	remote.rmr_context = pair.passive.rmr_context;
	post_recv(&pair.passive, 8 * PART, PART);
	must("dat_ib_post_rdma_write_immed",
	     dat_ib_post_rdma_write_immed(pair.active.ep, 1, &local, cookie_of(1), &remote, IMMEDIATE,
					  DAT_COMPLETION_DEFAULT_FLAG));
	expect_event(pair.active.request_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT, &event);
	dto = &event.event_data.dto_completion_event_data;
	expect(dto->status == DAT_DTO_SUCCESS && (int)dto->operation == (int)DAT_IB_DTO_RDMA_WRITE_IMMED);
	expect(dto->transfered_length == PART && dto->user_cookie.as_64 == 1);
	expect_event(pair.passive.recv_evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT, &event);
	dto = &event.event_data.dto_completion_event_data;
	extension = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
	expect(dto->status == DAT_DTO_SUCCESS && (int)dto->operation == (int)DAT_IB_DTO_RECV_IMMED);
	expect(dto->user_cookie.as_64 == 8 * PART);
	expect(extension->type == DAT_IB_RDMA_WRITE_IMMED_DATA);
	expect(extension->val.immed.data == IMMEDIATE);
	verify("written", pair.passive.buffer + PART, PART, 5);
	one_message(&pair, 6);
	pair_close(&pair);
}

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
	{ "atomics", atomics },
	{ "immediate", immediate },
	{ "stop-counters", stop_counters },
	{ "open-query", open_query },
};

TRIAL_MAIN(TRIALS)
