/*
 * Preloaded into programs that refuse to start where memory cannot be locked without a limit. The
 * software provider locks no memory.
 */
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int limits_of(unsigned int resource, struct rlimit *limits)
{
	/* The structure of the call is that of the C library on 64-bit machines. */
	int result = (int)syscall(SYS_prlimit64, 0, resource, NULL, limits);

	if (!result && resource == RLIMIT_MEMLOCK)
		limits->rlim_cur = limits->rlim_max = RLIM_INFINITY;
	return result;
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limits)
{
	return limits_of((unsigned int)resource, limits);
}
