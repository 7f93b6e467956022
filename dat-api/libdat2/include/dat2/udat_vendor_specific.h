/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: user-space declarations of a vendor. There are none.
 */
#ifndef _UDAT_VENDOR_SPECIFIC_H_
#define _UDAT_VENDOR_SPECIFIC_H_

#endif /* _UDAT_VENDOR_SPECIFIC_H_ */
