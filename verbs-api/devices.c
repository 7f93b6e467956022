/*
 * libverbs-devices.so: device files of devices that have none. Programs such as UCX use a device
 * only if /dev/infiniband has a character device with the name in `dev_name`, and never open it.
 * verbsrun loads this library in front of the C library's functions. They find /dev/null in place
 * of the device file of a device of this project.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "/dev/infiniband/uverbs_dat_"

static const char *file_of(const char *path)
{
    return path && !strncmp(path, PREFIX, sizeof PREFIX - 1) ? "/dev/null" : path;
}

__attribute__((visibility("default"))) int stat(const char *path, struct stat *out)
{
    int (*next)(const char *, struct stat *) = dlsym(RTLD_NEXT, "stat");
    return next(file_of(path), out);
}

__attribute__((visibility("default"))) int access(const char *path, int mode)
{
    int (*next)(const char *, int) = dlsym(RTLD_NEXT, "access");
    return next(file_of(path), mode);
}
