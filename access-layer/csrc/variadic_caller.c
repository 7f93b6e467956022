/*
 * Calls an extension entry the way a registry library does: variable arguments in, va_list out.
 *
 * For the tests of this crate. It is an object of its own, so a library that does not refer to it
 * does not get it.
 */
#include <stdarg.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

typedef uint32_t (*access_extension_entry)(void *handle, int op, va_list args);

uint32_t access_call_extension(access_extension_entry entry, void *handle, int op, ...)
{
	va_list args;
	uint32_t code;

	va_start(args, op);
	code = entry(handle, op, args);
	va_end(args);
	return code;
}

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
