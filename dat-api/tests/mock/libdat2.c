/*
 * A registry library for the tests of the Rust API: objects are counted and their frees logged,
 * events are those that a test has queued, and nothing is ever sent. Calls that no test needs
 * return "not implemented".
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>
#include <dat2/dat_iw_extensions.h>

#define API __attribute__((visibility("default")))
#define EVENTS_MAX 64
#define LOG_MAX 4096
#define FAILURE(type, subtype) ((DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype)))

/* State that a test reads and sets. */
struct mock {
	char log[LOG_MAX];
	DAT_RETURN refuse_socket, refuse_lmr_free;
	DAT_EP_STATE ep_state;
	int passed_socket;
	DAT_UINT64 last_cookie;
	DAT_EVENT events[EVENTS_MAX];
	unsigned first, count;
};

API struct mock mock;

/* Handles are numbers; each kind starts at its own number. */
static uintptr_t next_handle = 0x1000;

static void note(const char *what)
{
	if (strlen(mock.log) + strlen(what) + 2 < LOG_MAX) {
		strcat(mock.log, what);
		strcat(mock.log, " ");
	}
}

static DAT_RETURN create(DAT_HANDLE *out)
{
	*out = (DAT_HANDLE)(next_handle += 0x10);
	return DAT_SUCCESS;
}

API void mock_put(const DAT_EVENT *event)
{
	mock.events[(mock.first + mock.count++) % EVENTS_MAX] = *event;
}

static DAT_RETURN take(DAT_EVENT *event, DAT_RETURN empty)
{
	if (mock.count == 0)
		return empty;
	*event = mock.events[mock.first];
	mock.first = (mock.first + 1) % EVENTS_MAX;
	mock.count--;
	return DAT_SUCCESS;
}

API DAT_RETURN dat_ia_openv(DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async,
			    DAT_IA_HANDLE *ia, DAT_UINT32 major, DAT_UINT32 minor, DAT_BOOLEAN safe)
{
	if (strcmp(name, "mock") != 0)
		return FAILURE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
	create((DAT_HANDLE *)async);
	return create(ia);
}

API DAT_RETURN dat_strerror(DAT_RETURN code, const char **major, const char **minor)
{
	*major = "MOCK_MAJOR";
	*minor = "MOCK_MINOR";
	return DAT_SUCCESS;
}

#define FREE(call, word) \
	API DAT_RETURN call(DAT_HANDLE handle) \
	{ \
		note(word); \
		return DAT_SUCCESS; \
	}

FREE(dat_cno_free, "cno")
FREE(dat_rmr_free, "rmr")
FREE(dat_pz_free, "pz")
FREE(dat_psp_free, "psp")
FREE(dat_rsp_free, "rsp")

API DAT_RETURN dat_ep_free(DAT_EP_HANDLE ep)
{
	if (mock.ep_state == DAT_EP_STATE_PASSIVE_CONNECTION_PENDING)
		return FAILURE(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_PASSCONNPENDING);
	note("ep");
	return DAT_SUCCESS;
}

API DAT_RETURN dat_rsp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL qualifier, DAT_EP_HANDLE ep,
			      DAT_EVD_HANDLE evd, DAT_RSP_HANDLE *rsp)
{
	return create(rsp);
}

API DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
	note("ia");
	return DAT_SUCCESS;
}

API DAT_RETURN dat_lmr_free(DAT_LMR_HANDLE lmr)
{
	note("lmr");
	return mock.refuse_lmr_free;
}

API DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz)
{
	return create(pz);
}

API DAT_RETURN dat_cno_create(DAT_IA_HANDLE ia, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno)
{
	return create(cno);
}

/* The CNO of the event dispatcher that has one; a waiter is always on it. */
static DAT_CNO_HANDLE waited;

API DAT_RETURN dat_evd_create(DAT_IA_HANDLE ia, DAT_COUNT qlen, DAT_CNO_HANDLE cno,
			      DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd)
{
	waited = cno;
	return create(evd);
}

API DAT_RETURN dat_evd_modify_cno(DAT_EVD_HANDLE evd, DAT_CNO_HANDLE cno)
{
	waited = cno;
	return DAT_SUCCESS;
}

API DAT_RETURN dat_evd_free(DAT_EVD_HANDLE evd)
{
	if (waited)
		return FAILURE(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
	note("evd");
	return DAT_SUCCESS;
}

API DAT_RETURN dat_rmr_create(DAT_PZ_HANDLE pz, DAT_RMR_HANDLE *rmr)
{
	return create(rmr);
}

API DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr, DAT_LMR_HANDLE lmr, const DAT_LMR_TRIPLET *triplet,
			    DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va, DAT_EP_HANDLE ep,
			    DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
			    DAT_RMR_CONTEXT *context)
{
	*context = 3;
	return DAT_SUCCESS;
}

API DAT_RETURN dat_evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
	return take(event, DAT_QUEUE_EMPTY);
}

API DAT_RETURN dat_evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold,
			    DAT_EVENT *event, DAT_COUNT *more)
{
	return take(event, FAILURE(DAT_TIMEOUT_EXPIRED, 0));
}

API DAT_RETURN dat_ep_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
			     DAT_EVD_HANDLE request, DAT_EVD_HANDLE connect, const DAT_EP_ATTR *attr,
			     DAT_EP_HANDLE *ep)
{
	return create(ep);
}

API DAT_RETURN dat_ep_get_status(DAT_EP_HANDLE ep, DAT_EP_STATE *state, DAT_BOOLEAN *recv,
				 DAT_BOOLEAN *request)
{
	*state = mock.ep_state;
	return DAT_SUCCESS;
}

API DAT_RETURN dat_ep_disconnect(DAT_EP_HANDLE ep, DAT_CLOSE_FLAGS flags)
{
	note("disconnect");
	return DAT_SUCCESS;
}

API DAT_RETURN dat_ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT count, DAT_LMR_TRIPLET *iov,
				DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
	mock.last_cookie = cookie.as_64;
	return DAT_SUCCESS;
}

API DAT_RETURN dat_lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region,
			      DAT_VLEN len, DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS privileges,
			      DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr, DAT_LMR_CONTEXT *lmr_context,
			      DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *reg_len, DAT_VADDR *reg_address)
{
	*lmr_context = 1;
	*rmr_context = 2;
	*reg_len = len;
	*reg_address = (DAT_VADDR)(uintptr_t)region.for_va;
	return create(lmr);
}

API DAT_RETURN dat_cr_query(DAT_CR_HANDLE cr, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM *param)
{
	memset(param, 0, sizeof(*param));
	param->private_data_size = 5;
	param->private_data = "hello";
	return DAT_SUCCESS;
}

API DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr, DAT_EP_HANDLE ep, DAT_COUNT size,
			     const DAT_PVOID data)
{
	note(ep == DAT_HANDLE_NULL ? "accept-reserved" : "accept-named");
	return DAT_SUCCESS;
}

API DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr, DAT_COUNT size, const DAT_PVOID data)
{
	note("reject");
	if (mock.ep_state == DAT_EP_STATE_PASSIVE_CONNECTION_PENDING)
		mock.ep_state = DAT_EP_STATE_UNCONNECTED;
	return DAT_SUCCESS;
}

API DAT_RETURN dat_extension_op(DAT_HANDLE handle, const DAT_EXTENDED_OP op, ...)
{
	DAT_RETURN ret = DAT_SUCCESS;
	va_list args;

	va_start(args, op);
	if (op == (DAT_EXTENDED_OP)DAT_IW_SSP_CREATE_OP) {
		mock.passed_socket = va_arg(args, int);
		va_arg(args, DAT_EP_HANDLE);
		va_arg(args, DAT_EVD_HANDLE);
		va_arg(args, DAT_PVOID);
		va_arg(args, DAT_COUNT);
		ret = mock.refuse_socket;
		if (ret == DAT_SUCCESS)
			create(va_arg(args, DAT_IW_SSP_HANDLE *));
	} else if (op == (DAT_EXTENDED_OP)DAT_IW_SOCKET_CONNECT_OP) {
		mock.passed_socket = va_arg(args, int);
		ret = mock.refuse_socket;
	} else if (op == (DAT_EXTENDED_OP)DAT_IW_SSP_FREE_OP) {
		note("ssp");
	} else {
		ret = FAILURE(DAT_NOT_IMPLEMENTED, 0);
	}
	va_end(args);
	return ret;
}
