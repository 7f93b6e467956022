/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: declarations of a vendor. There are none.
 */
#ifndef _DAT_VENDOR_SPECIFIC_H_
#define _DAT_VENDOR_SPECIFIC_H_

#endif /* _DAT_VENDOR_SPECIFIC_H_ */
