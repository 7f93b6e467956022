/*
 * The registry, as a consumer uses it.
 *
 *   registry open NAME   opens and closes an interface adapter
 *   registry open NAME FILE   opens and closes it while FILE has the number of standard error
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <dat2/udat.h>

static int report(const char *call, DAT_RETURN ret)
{
	printf("RETURN %s 0x%08x\n", call, (unsigned)ret);
	return ret == DAT_SUCCESS ? 0 : 1;
}

static int open_and_close(const char *name)
{
	DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia;
	DAT_RETURN ret = dat_ia_open((char *)name, 8, &async_evd, &ia);

	if (report("dat_ia_open", ret))
		return 1;
	return report("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return open_and_close(argv[2]);
	if (argc == 4 && strcmp(argv[1], "open") == 0) {
		close(2);
		if (open(argv[3], O_WRONLY | O_CREAT, 0600) != 2)
			return 2;
		return open_and_close(argv[2]);
	}
	fprintf(stderr, "usage: registry open NAME [FILE]\n");
	return 2;
}
