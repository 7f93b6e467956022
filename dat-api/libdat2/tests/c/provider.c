/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A provider with the minimum of code to test a registry library. Its instance data select its
 * behaviour:
 *
 *   ok            everything works
 *   no-extensions the IA reports no extensions
 *   no-register   init registers nothing
 *   fail-open     ia_open fails with INSUFFICIENT_RESOURCES
 *   bad-handle    ia_open returns a handle that does not belong to this provider
 *   fail-query    the query for provider attributes fails with INTERNAL_ERROR
 *   other-key     the provider attributes contain another version
 *   reenter       init calls back into the registry
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

struct object {
	DAT_PROVIDER *provider;
	DAT_CONTEXT context;
	DAT_HANDLE_TYPE type;
};

struct instance {
	DAT_PROVIDER provider;
	DAT_PROVIDER_INFO info;
	char params[64];
	struct instance *next;
};

/* The log of the test program, which stays when the provider is unloaded; looked up by name. */
extern struct provider_log provider_log_of_program __attribute__((weak));

static struct provider_log own_log;
static struct instance *instances;

static struct provider_log *log_of_test(void)
{
	return &provider_log_of_program ? &provider_log_of_program : &own_log;
}

static struct instance *instance_of(DAT_HANDLE handle)
{
	return (struct instance *)((struct object *)handle)->provider->extension;
}

static int behaves(const struct instance *instance, const char *how)
{
	return strstr(instance->params, how) != NULL;
}

static DAT_RETURN new_object(DAT_PROVIDER *provider, DAT_HANDLE_TYPE type, DAT_HANDLE *handle)
{
	struct object *object = calloc(1, sizeof *object);

	if (!object)
		return DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES | DAT_RESOURCE_MEMORY;
	object->provider = provider;
	object->type = type;
	*handle = object;
	return DAT_SUCCESS;
}

static DAT_RETURN free_object(DAT_HANDLE object)
{
	free(object);
	return DAT_SUCCESS;
}

static DAT_RETURN not_supported(void)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static void expect(int condition)
{
	if (!condition)
		log_of_test()->argument_errors++;
}

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async_evd,
			  DAT_IA_HANDLE *ia)
{
	struct instance *instance;

	(void)qlen;
	(void)async_evd;
	for (instance = instances; instance; instance = instance->next) {
		if (strcmp(instance->info.ia_name, name) != 0)
			continue;
		log_of_test()->opens++;
		if (behaves(instance, "fail-open")) {
			*ia = ARG_PTR(99);
			return DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES | DAT_RESOURCE_DEVICE;
		}
		if (behaves(instance, "bad-handle")) {
			*ia = (DAT_IA_HANDLE)0x7;
			return DAT_SUCCESS;
		}
		return new_object(&instance->provider, DAT_HANDLE_TYPE_IA, ia);
	}
	return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG1;
}

static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK ia_mask,
			   DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK provider_mask,
			   DAT_PROVIDER_ATTR *provider_attr)
{
	struct instance *instance = instance_of(ia);

	(void)async_evd;
	if (ia_mask && ia_attr) {
		memset(ia_attr, 0, sizeof *ia_attr);
		strcpy(ia_attr->adapter_name, instance->info.ia_name);
		if (!behaves(instance, "no-extensions"))
			ia_attr->extension_supported = DAT_EXTENSION_IB;
	}
	if (provider_mask && behaves(instance, "fail-query"))
		return DAT_CLASS_ERROR | DAT_INTERNAL_ERROR;
	if (provider_mask && provider_attr) {
		memset(provider_attr, 0, sizeof *provider_attr);
		provider_attr->dapl_version_major = behaves(instance, "other-key") ? 1 : 2;
		provider_attr->is_thread_safe = DAT_FALSE;
	}
	return DAT_SUCCESS;
}

static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
	if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG2;
	log_of_test()->closes++;
	free(ia);
	return DAT_SUCCESS;
}

static DAT_RETURN set_consumer_context(DAT_HANDLE handle, DAT_CONTEXT context)
{
	((struct object *)handle)->context = context;
	return DAT_SUCCESS;
}

static DAT_RETURN get_consumer_context(DAT_HANDLE handle, DAT_CONTEXT *context)
{
	*context = ((struct object *)handle)->context;
	return DAT_SUCCESS;
}

static DAT_RETURN get_handle_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *type)
{
	*type = ((struct object *)handle)->type;
	return DAT_SUCCESS;
}

static DAT_RETURN evd_create(DAT_IA_HANDLE ia, DAT_COUNT qlen, DAT_CNO_HANDLE cno,
			     DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd)
{
	(void)qlen;
	(void)cno;
	(void)flags;
	return new_object(((struct object *)ia)->provider, DAT_HANDLE_TYPE_EVD, evd);
}

static DAT_RETURN evd_query(DAT_EVD_HANDLE evd, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM *param)
{
	(void)mask;
	param->ia_handle = evd;
	return DAT_SUCCESS;
}

static DAT_RETURN evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
	(void)evd;
	(void)event;
	return DAT_QUEUE_EMPTY;
}

static DAT_RETURN pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz)
{
	return new_object(((struct object *)ia)->provider, DAT_HANDLE_TYPE_PZ, pz);
}

static DAT_RETURN ep_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv_evd,
			    DAT_EVD_HANDLE request_evd, DAT_EVD_HANDLE connect_evd,
			    const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep)
{
	expect(pz == ARG_PTR(1) && recv_evd == ARG_PTR(2) && request_evd == ARG_PTR(3));
	expect(connect_evd == ARG_PTR(4) && attr == ARG_PTR(5));
	return new_object(((struct object *)ia)->provider, DAT_HANDLE_TYPE_EP, ep);
}

static DAT_RETURN ep_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR address, DAT_CONN_QUAL qual,
			     DAT_TIMEOUT timeout, DAT_COUNT size, const DAT_PVOID data, DAT_QOS qos,
			     DAT_CONNECT_FLAGS flags)
{
	(void)ep;
	expect(address == ARG_PTR(1) && qual == ARG_64(2) && timeout == ARG_32(3) && size == 4);
	expect(data == ARG_PTR(5) && qos == DAT_QOS_PREMIUM);
	expect(flags == DAT_CONNECT_MULTIPATH_REQUIRED_FLAG);
	return DAT_SUCCESS;
}

static DAT_RETURN ep_post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT count, DAT_LMR_TRIPLET *local,
				     DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
				     DAT_COMPLETION_FLAGS flags)
{
	(void)ep;
	expect(count == 1 && local == ARG_PTR(2) && cookie.as_64 == ARG_64(3));
	expect(remote == ARG_PTR(4) && flags == DAT_COMPLETION_BARRIER_FENCE_FLAG);
	return DAT_SUCCESS;
}

static DAT_RETURN ep_post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT count,
					       DAT_LMR_TRIPLET *local, DAT_DTO_COOKIE cookie,
					       DAT_COMPLETION_FLAGS flags, DAT_BOOLEAN invalidate,
					       DAT_RMR_CONTEXT context)
{
	(void)ep;
	expect(count == 1 && local == ARG_PTR(2) && cookie.as_64 == ARG_64(3));
	expect(flags == DAT_COMPLETION_SUPPRESS_FLAG && invalidate == DAT_TRUE);
	expect(context == ARG_32(6));
	return DAT_SUCCESS;
}

static DAT_RETURN lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region,
			     DAT_VLEN length, DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS privileges,
			     DAT_VA_TYPE va_type, DAT_LMR_HANDLE *lmr, DAT_LMR_CONTEXT *lmr_context,
			     DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *size, DAT_VADDR *address)
{
	expect(type == DAT_MEM_TYPE_SHARED_VIRTUAL);
	expect(region.for_shared_memory.virtual_address == ARG_PTR(1));
	expect((DAT_PVOID)region.for_shared_memory.shared_memory_id == ARG_PTR(2));
	expect(length == ARG_64(3) && pz == ARG_PTR(4) && privileges == DAT_MEM_PRIV_ALL_FLAG);
	expect(va_type == DAT_VA_TYPE_ZB);
	*lmr_context = ARG_32(5);
	*rmr_context = ARG_32(6);
	*size = ARG_64(7);
	*address = ARG_64(8);
	return new_object(((struct object *)ia)->provider, DAT_HANDLE_TYPE_LMR, lmr);
}

static DAT_RETURN rmr_create(DAT_PZ_HANDLE pz, DAT_RMR_HANDLE *rmr)
{
	return new_object(((struct object *)pz)->provider, DAT_HANDLE_TYPE_RMR, rmr);
}

static DAT_RETURN rmr_bind(DAT_RMR_HANDLE rmr, DAT_LMR_HANDLE lmr, const DAT_LMR_TRIPLET *triplet,
			   DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep,
			   DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
			   DAT_RMR_CONTEXT *context)
{
	(void)rmr;
	expect(lmr == ARG_PTR(1) && triplet == ARG_PTR(2));
	expect(privileges == DAT_MEM_PRIV_REMOTE_READ_FLAG && va_type == DAT_VA_TYPE_ZB);
	expect(ep == ARG_PTR(5) && cookie.as_64 == ARG_64(6));
	expect(flags == DAT_COMPLETION_UNSIGNALLED_FLAG);
	*context = ARG_32(8);
	return DAT_SUCCESS;
}

static DAT_RETURN cno_create(DAT_IA_HANDLE ia, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno)
{
	expect(agent.instance_data == ARG_PTR(1) && agent.proxy_agent_func == NULL);
	return new_object(((struct object *)ia)->provider, DAT_HANDLE_TYPE_CNO, cno);
}

static DAT_RETURN cno_modify_agent(DAT_CNO_HANDLE cno, DAT_OS_WAIT_PROXY_AGENT agent)
{
	(void)cno;
	expect(agent.instance_data == ARG_PTR(2) && agent.proxy_agent_func == NULL);
	return DAT_SUCCESS;
}

static DAT_RETURN handle_extendedop(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
	struct provider_log *log = log_of_test();

	log->extension_ops++;
	log->last_extension_handle = handle;
	log->last_extension_op = op;
	if (op == TEST_OP_SUM) {
		int a = va_arg(args, int);
		unsigned long long b = va_arg(args, unsigned long long);
		DAT_CONTEXT c = va_arg(args, DAT_CONTEXT);
		int d = va_arg(args, int);
		int e = va_arg(args, int);
		int f = va_arg(args, int);

		*va_arg(args, unsigned long long *) = a + b + c.as_64 + d + e + f;
		return DAT_SUCCESS;
	}
	if (op == TEST_OP_OPEN) {
		DAT_IA_HANDLE *ia = va_arg(args, DAT_IA_HANDLE *);

		return ia_open((DAT_NAME_PTR)handle, 0, NULL, ia);
	}
	if (op == TEST_OP_CLOSE)
		return ia_close(handle, DAT_CLOSE_ABRUPT_FLAG);
	return DAT_NOT_IMPLEMENTED;
}

static void fill(DAT_PROVIDER *provider)
{
	DAT_RETURN (**slot)(void) = (DAT_RETURN (**)(void))&provider->ia_open_func;
	DAT_RETURN (**end)(void) = (DAT_RETURN (**)(void))(provider + 1);

	while (slot < end)
		*slot++ = not_supported;
	provider->ia_open_func = ia_open;
	provider->ia_query_func = ia_query;
	provider->ia_close_func = ia_close;
	provider->set_consumer_context_func = set_consumer_context;
	provider->get_consumer_context_func = get_consumer_context;
	provider->get_handle_type_func = get_handle_type;
	provider->evd_create_func = evd_create;
	provider->evd_query_func = evd_query;
	provider->evd_dequeue_func = evd_dequeue;
	provider->evd_free_func = free_object;
	provider->pz_create_func = pz_create;
	provider->pz_free_func = free_object;
	provider->ep_create_func = ep_create;
	provider->ep_free_func = free_object;
	provider->ep_connect_func = ep_connect;
	provider->ep_post_rdma_write_func = ep_post_rdma_write;
	provider->ep_post_send_with_invalidate_func = ep_post_send_with_invalidate;
	provider->lmr_create_func = lmr_create;
	provider->lmr_free_func = free_object;
	provider->rmr_create_func = rmr_create;
	provider->rmr_bind_func = rmr_bind;
	provider->rmr_free_func = free_object;
	provider->cno_create_func = cno_create;
	provider->cno_modify_agent_func = cno_modify_agent;
	provider->cno_free_func = free_object;
	provider->handle_extendedop_func = handle_extendedop;
	provider->ep_reset_func = NULL;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
	struct provider_log *log = log_of_test();
	struct instance *instance = calloc(1, sizeof *instance);

	log->inits++;
	strcpy(log->last_init, info->ia_name);
	strcpy(log->last_params, params);
	instance->info = *info;
	strncpy(instance->params, params, sizeof instance->params - 1);
	fill(&instance->provider);
	instance->provider.device_name = instance->info.ia_name;
	instance->provider.extension = instance;
	if (behaves(instance, "reenter")) {
		DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
		DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
		DAT_COUNT count = 0;

		/* The provider's own name is busy; all other calls work. */
		expect(dat_ia_open(instance->info.ia_name, 8, &evd, &ia) ==
		       (DAT_CLASS_ERROR | DAT_INVALID_STATE));
		expect(dat_ia_open((char *)"no such name", 8, &evd, &ia) ==
		       (DAT_CLASS_ERROR | DAT_PROVIDER_NOT_FOUND | DAT_NAME_NOT_REGISTERED));
		dat_registry_list_providers(0, &count, NULL);
		expect(count > 0);
	}
	if (behaves(instance, "no-register")) {
		free(instance);
		return;
	}
	expect(dat_registry_add_provider(&instance->provider, info) == DAT_SUCCESS);
	instance->next = instances;
	instances = instance;
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
	struct instance **link = &instances;

	log_of_test()->finis++;
	while (*link && strcmp((*link)->info.ia_name, info->ia_name) != 0)
		link = &(*link)->next;
	if (*link) {
		struct instance *instance = *link;

		expect(dat_registry_remove_provider(&instance->provider, info) == DAT_SUCCESS);
		*link = instance->next;
		free(instance);
	}
}
