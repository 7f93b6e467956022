/* A shared library whose thread-local values must be in the memory that a thread has from its
 * creation, as those of some compilers' run-time libraries. */
#define LEN 256

static __thread char bytes[LEN] __attribute__((tls_model("initial-exec")));

int tls_user_touch(int value)
{
	for (int at = 0; at < LEN; at++)
		bytes[at] = (char)value;
	return bytes[LEN - 1] == (char)value;
}
