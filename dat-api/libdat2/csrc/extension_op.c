/*
 * The variadic entry dat_extension_op. It converts its arguments to a va_list, which is passed as
 * one pointer on every supported machine. The Rust code does everything else.
 *
 * The first variadic argument of operations with the open bit is the name of an IA. It is read
 * here, because providers expect a list that begins after it.
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
