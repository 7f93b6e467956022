/* The header in C++, with a call. */
#include <errno.h>
#include <stdio.h>

#include <sdp_dat.h>

int main(void)
{
	if (sdpd_close(-1) == -1 && errno == EBADF)
		puts("PASSED");
	return 0;
}
