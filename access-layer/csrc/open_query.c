/*
 * Reads the variable arguments of the IB extension's "open query" operation, which a registry
 * library passes on with the IA name in place of the handle and the name removed from the list.
 */
#include <stdarg.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

struct access_open_query_args {
	void **ia_handle;
	uint64_t ia_mask;
	void *ia_attr;
	uint64_t provider_mask;
	void *provider_attr;
};

/* A va_list parameter is a pointer on the ABIs of this crate; see csrc/iw_extension.c. */
void access_read_open_query(va_list args, struct access_open_query_args *out)
{
	out->ia_handle = va_arg(args, void **);
	out->ia_mask = va_arg(args, uint64_t);
	out->ia_attr = va_arg(args, void *);
	out->provider_mask = va_arg(args, uint64_t);
	out->provider_attr = va_arg(args, void *);
}
