/*
 * The lines for return values and connection events that the suites check.
 */
#ifndef STACK_TESTS_WORDS_H
#define STACK_TESTS_WORDS_H

#include <stdio.h>
#include <stdlib.h>

#include <dat2/udat.h>

static inline void print_failure(const char *call, DAT_RETURN ret)
{
	const char *major = "?", *minor = "?";

	dat_strerror(ret, &major, &minor);
	printf("RETURN %s 0x%08x %s %s\n", call, (unsigned)ret, major, minor);
}

static inline void must(const char *call, DAT_RETURN ret)
{
	if (ret != DAT_SUCCESS) {
		print_failure(call, ret);
		exit(1);
	}
}

static inline const char *event_name(DAT_EVENT_NUMBER number)
{
	switch ((unsigned)number) {
	case DAT_CONNECTION_REQUEST_EVENT:
		return "request";
	case DAT_CONNECTION_EVENT_ESTABLISHED:
		return "established";
	case DAT_CONNECTION_EVENT_PEER_REJECTED:
		return "peer-rejected";
	case DAT_CONNECTION_EVENT_NON_PEER_REJECTED:
		return "non-peer-rejected";
	case DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR:
		return "accept-error";
	case DAT_CONNECTION_EVENT_DISCONNECTED:
		return "disconnected";
	case DAT_CONNECTION_EVENT_BROKEN:
		return "broken";
	case DAT_CONNECTION_EVENT_TIMED_OUT:
		return "timed-out";
	case DAT_CONNECTION_EVENT_UNREACHABLE:
		return "unreachable";
	case 0x80001: /* DAT_CONNECTION_EVENT_SOCKET_DOWN of the iWARP extension */
		return "socket-down";
	default:
		return "unknown";
	}
}

#endif
