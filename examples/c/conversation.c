/* Lines, messages, data and checksums of the conversation. */
#define _GNU_SOURCE
#include "conversation.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

_Noreturn void die(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("convert: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(EXIT_FAILURE);
}

void encode(const struct message *message, unsigned char *bytes)
{
	uint64_t address = htobe64(message->address), sum = htobe64(message->checksum);
	uint32_t length = htobe32(message->length), context = htobe32(message->context);

	memset(bytes, 0, MESSAGE_LEN);
	memcpy(bytes, message->kind, 4);
	memcpy(bytes + 8, &address, 8);
	memcpy(bytes + 16, &length, 4);
	memcpy(bytes + 20, &context, 4);
	memcpy(bytes + 24, &sum, 8);
	memcpy(bytes + 32, message->text, strnlen(message->text, TEXT_LEN));
}

void decode(const unsigned char *bytes, struct message *message)
{
	memset(message, 0, sizeof(*message));
	memcpy(message->kind, bytes, 4);
	memcpy(&message->address, bytes + 8, 8);
	memcpy(&message->length, bytes + 16, 4);
	memcpy(&message->context, bytes + 20, 4);
	memcpy(&message->checksum, bytes + 24, 8);
	memcpy(message->text, bytes + 32, TEXT_LEN);
	message->address = be64toh(message->address);
	message->length = be32toh(message->length);
	message->context = be32toh(message->context);
	message->checksum = be64toh(message->checksum);
}

void fill(void *data, size_t len)
{
	unsigned char *bytes = data;

	for (size_t i = 0; i < len / 8; i++) {
		uint64_t word = htole64((i + 1) * UINT64_C(0x9E3779B97F4A7C15));

		memcpy(bytes + i * 8, &word, 8);
	}
}

uint64_t checksum(const void *data, size_t len)
{
	const unsigned char *bytes = data;
	uint64_t sum = CHECKSUM_START;

	for (size_t i = 0; i < len / 8; i++) {
		uint64_t word;

		memcpy(&word, bytes + i * 8, 8);
		sum = (sum ^ le64toh(word)) * UINT64_C(0x100000001B3);
	}
	return sum;
}

void read_all(int fd, void *data, size_t len)
{
	char *at = data;

	while (len > 0) {
		ssize_t got = read(fd, at, len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			die("reading: %s", strerror(errno));
		if (got == 0)
			die("the peer closed the connection in streaming mode");
		at += got;
		len -= (size_t)got;
	}
}

void write_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t put = send(fd, at, len, MSG_NOSIGNAL);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			die("writing: %s", strerror(errno));
		at += put;
		len -= (size_t)put;
	}
}

void read_line(int fd, char line[LINE_MAX_LEN + 1])
{
	for (size_t len = 0;; len++) {
		if (len > LINE_MAX_LEN)
			die("a line of more than %d bytes", LINE_MAX_LEN);
		read_all(fd, &line[len], 1);
		if (line[len] == '\n') {
			line[len] = '\0';
			return;
		}
	}
}

void write_line(int fd, const char *format, ...)
{
	char line[LINE_MAX_LEN + 2];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, LINE_MAX_LEN + 1, format, args);
	va_end(args);
	if (len < 0 || len > LINE_MAX_LEN)
		die("a line of more than %d bytes", LINE_MAX_LEN);
	line[len] = '\n';
	write_all(fd, line, (size_t)len + 1);
}

double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void print_speed(const char *what, size_t len, double begin)
{
	double took = seconds() - begin;

	printf("%s of %zu MiB in %.1f ms (%.2f GB/s)\n", what, len >> 20, took * 1e3,
	       (double)len / took / 1e9);
}
