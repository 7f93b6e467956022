/*
 * Reads the variable arguments of the IB extension's counter operations; see csrc/iw_extension.c.
 */
#include <stdarg.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

struct access_query_counters_args {
	uint64_t *out;
	int counter;
	int reset;
};

struct access_print_counters_args {
	int counter;
	int reset;
};

void access_read_query_counters(va_list args, struct access_query_counters_args *out)
{
	out->counter = va_arg(args, int);
	out->out = va_arg(args, uint64_t *);
	out->reset = va_arg(args, int);
}

void access_read_print_counters(va_list args, struct access_print_counters_args *out)
{
	out->counter = va_arg(args, int);
	out->reset = va_arg(args, int);
}

uint32_t access_read_counter_type(va_list args)
{
	return va_arg(args, unsigned int);
}

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
