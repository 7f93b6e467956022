/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: features of this installation.
 */
#ifndef _UDAT_CONFIG_H_
#define _UDAT_CONFIG_H_

/* Version of the interface that these headers describe. */
#define DAT_VERSION_MAJOR 2
#define DAT_VERSION_MINOR 0

/* Thread safety that dat_ia_open requests. The entries of dat.conf are declared nonthreadsafe. */
#define DAT_THREADSAFE DAT_FALSE

/* dat_extension_op is available. */
#define DAT_EXTENSIONS 1

#endif /* _UDAT_CONFIG_H_ */
