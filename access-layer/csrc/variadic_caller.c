/*
 * Calls an extension entry as a registry library does: variable arguments in, va_list out.
 *
 * For the tests of this crate. The function is in a separate object, so the linker does not add it
 * to a library that does not refer to it.
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
