/*
 * The resources of a process that must not grow: descriptors, threads, memory mappings. (Handles
 * need no count: a graceful dat_ia_close fails while an object exists.)
 */
#ifndef STACK_TESTS_CENSUS_H
#define STACK_TESTS_CENSUS_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

struct census {
	int descriptors, threads, mappings;
	long resident_kib;
};

static inline int entries_of(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

static inline int lines_of(const char *path)
{
	FILE *file = fopen(path, "r");
	int count = 0, byte;

	while (file && (byte = getc(file)) != EOF)
		count += byte == '\n';
	if (file)
		fclose(file);
	return count;
}

static inline long resident_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long whole = 0, resident = 0;

	if (file && fscanf(file, "%ld %ld", &whole, &resident) != 2)
		resident = 0;
	if (file)
		fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static inline struct census census_take(void)
{
	struct census now = { .descriptors = entries_of("/proc/self/fd"),
			      .threads = entries_of("/proc/self/task"),
			      .mappings = lines_of("/proc/self/maps"),
			      .resident_kib = resident_kib() };

	return now;
}

/*
 * Prints how many more resources the process holds than before. Waits for resources that are freed
 * late: a joined thread stays in the kernel's list for a moment, and a socket of an ended
 * connection waits for its peer's end.
 */
static inline void census_print(struct census before)
{
	struct census now = census_take();

	for (int tries = 0; tries < 200; tries++) {
		if (now.threads <= before.threads && now.descriptors <= before.descriptors)
			break;
		usleep(5000);
		now = census_take();
	}
	printf("LEFT descriptors=%d threads=%d mappings=%d resident_kib=%ld\n",
	       now.descriptors - before.descriptors, now.threads - before.threads,
	       now.mappings - before.mappings, now.resident_kib - before.resident_kib);
}

#endif
