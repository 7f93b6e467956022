/*
 * The parts of the conversation that need no DAT, for both sides: lines, messages, data, checksums.
 * dat-api/examples/convert.rs describes the conversation.
 */
#ifndef CONVERSATION_H
#define CONVERSATION_H

#include <stddef.h>
#include <stdint.h>

#define WHO "convert.c"
#define DATA_LEN (64u << 20)
#define PRIVATE_DATA "convert/1"
#define MESSAGE_LEN 64
#define TEXT_LEN 32
#define LINE_MAX_LEN 256
/* The number of messages of each side; the other side posts as many receives. */
#define CLIENT_MESSAGES 3
#define SERVER_MESSAGES 2
#define CHECKSUM_START UINT64_C(0xCBF29CE484222325)

struct message {
	char kind[5];
	uint64_t address;
	uint32_t length;
	uint32_t context;
	uint64_t checksum;
	char text[TEXT_LEN + 1];
};

/* Prints to standard error and ends the program. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

void encode(const struct message *message, unsigned char *bytes);
void decode(const unsigned char *bytes, struct message *message);

/* The length of the data must be a multiple of eight bytes. */
void fill(void *data, size_t len);
uint64_t checksum(const void *data, size_t len);

/*
 * Reads a line without its line feed. The line is read byte by byte, because the bytes after it may
 * be for another reader.
 */
void read_line(int fd, char line[LINE_MAX_LEN + 1]);
void write_line(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
void read_all(int fd, void *data, size_t len);
void write_all(int fd, const void *data, size_t len);

double seconds(void);
void print_speed(const char *what, size_t len, double begin);

#endif
