/*
 * The variadic entry dat_extension_op. Its arguments become a va_list, which travels as one pointer
 * on every supported machine, and everything else is decided in Rust.
 *
 * Operations with the open bit carry the name of an IA as their first variadic argument. It is
 * taken here, because providers expect the list to stand behind it.
 */
#include <stdarg.h>
#include <stddef.h>

#include <dat2/udat.h>

extern DAT_RETURN dat2_extension_op_va(DAT_HANDLE handle, DAT_EXTENDED_OP op, const char *name,
				       va_list args);

DAT_RETURN dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, ...)
{
	const char *name = NULL;
	DAT_RETURN status;
	va_list args;

	va_start(args, op);
	if (op & DAT_OPEN_EXTENSION_BASE)
		name = va_arg(args, const char *);
	status = dat2_extension_op_va(handle, op, name, args);
	va_end(args);
	return status;
}
