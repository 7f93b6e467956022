/*
 * Reads the variable arguments of extension operations.
 *
 * A va_list parameter is passed to Rust as one pointer (by System V AMD64 and by AAPCS64), but only
 * C can read arguments from it. Each function below reads the arguments of one operation, in the
 * order of the header dat2/dat_iw_extensions.h or dat2/dat_ib_extensions.h. The functions check
 * nothing; the Rust code does.
 *
 * DAT_DTO_COOKIE is a union of a pointer and 64-bit integers; it is passed like a 64-bit integer.
 */
#include <stdarg.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

struct access_ssp_create_args {
	void *ep_handle;
	void *evd_handle;
	void *final_message;
	void **ssp_handle;
	int32_t socket;
	int32_t final_message_len;
};

struct access_ssp_query_args {
	void *param;
	uint32_t mask;
};

struct access_socket_connect_args {
	void *private_data;
	int32_t socket;
	uint32_t timeout_us;
	int32_t private_data_size;
};

struct access_atomic_args {
	uint64_t first;
	uint64_t second;
	uint64_t cookie;
	void *local;
	void *remote;
	uint32_t flags;
};

struct access_write_immediate_args {
	uint64_t cookie;
	void *local;
	void *remote;
	int32_t segments;
	uint32_t immediate;
	uint32_t flags;
};

void access_read_ssp_create(va_list args, struct access_ssp_create_args *out)
{
	out->socket = va_arg(args, int);
	out->ep_handle = va_arg(args, void *);
	out->evd_handle = va_arg(args, void *);
	out->final_message = va_arg(args, void *);
	out->final_message_len = va_arg(args, int);
	out->ssp_handle = va_arg(args, void **);
}

void access_read_ssp_query(va_list args, struct access_ssp_query_args *out)
{
	out->mask = va_arg(args, unsigned int);
	out->param = va_arg(args, void *);
}

void access_read_socket_connect(va_list args, struct access_socket_connect_args *out)
{
	out->socket = va_arg(args, int);
	out->timeout_us = va_arg(args, unsigned int);
	out->private_data_size = va_arg(args, int);
	out->private_data = va_arg(args, void *);
}

void access_read_fetch_and_add(va_list args, struct access_atomic_args *out)
{
	out->first = va_arg(args, uint64_t);
	out->second = 0;
	out->local = va_arg(args, void *);
	out->cookie = va_arg(args, uint64_t);
	out->remote = va_arg(args, void *);
	out->flags = va_arg(args, unsigned int);
}

void access_read_compare_and_swap(va_list args, struct access_atomic_args *out)
{
	out->first = va_arg(args, uint64_t);
	out->second = va_arg(args, uint64_t);
	out->local = va_arg(args, void *);
	out->cookie = va_arg(args, uint64_t);
	out->remote = va_arg(args, void *);
	out->flags = va_arg(args, unsigned int);
}

void access_read_write_immediate(va_list args, struct access_write_immediate_args *out)
{
	out->segments = va_arg(args, int);
	out->local = va_arg(args, void *);
	out->cookie = va_arg(args, uint64_t);
	out->remote = va_arg(args, void *);
	out->immediate = va_arg(args, unsigned int);
	out->flags = va_arg(args, unsigned int);
}

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
