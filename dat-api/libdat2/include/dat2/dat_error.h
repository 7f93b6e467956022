/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: return codes. A code is class | type | subtype.
 */
#ifndef _DAT_ERROR_H_
#define _DAT_ERROR_H_

/* Class: bits 31 and 30. A few calls report a failure without it, so compare the type. */
#define DAT_CLASS_ERROR 0x80000000
#define DAT_CLASS_WARNING 0x40000000
#define DAT_CLASS_SUCCESS 0x00000000

#define DAT_TYPE_MASK 0x3fff0000    /* bits 29 to 16 */
#define DAT_SUBTYPE_MASK 0x0000ffff /* bits 15 to 0 */

#define DAT_GET_TYPE(status) ((DAT_UINT32)(status) & DAT_TYPE_MASK)
#define DAT_GET_SUBTYPE(status) ((DAT_UINT32)(status) & DAT_SUBTYPE_MASK)

#define DAT_IS_WARNING(status) ((DAT_UINT32)(status) & DAT_CLASS_WARNING)

/* Kind of failure. */
typedef enum dat_return_type {
	DAT_SUCCESS = 0x00000000,                     /* the call succeeded */
	/* the operation was aborted because the IA was closed or the process is ending */
	DAT_ABORT = 0x00010000,
	DAT_CONN_QUAL_IN_USE = 0x00020000,            /* the connection qualifier is taken */
	/* a resource is exhausted; the subtype names the resource */
	DAT_INSUFFICIENT_RESOURCES = 0x00030000,
	/* a fault inside the provider or the registry */
	DAT_INTERNAL_ERROR = 0x00040000,
	/* a handle refers to no live object of the right kind; the subtype names the handle */
	DAT_INVALID_HANDLE = 0x00050000,
	/* an argument is out of range; the subtype names the argument */
	DAT_INVALID_PARAMETER = 0x00060000,
	/* an object is in the wrong state; the subtype names the state */
	DAT_INVALID_STATE = 0x00070000,
	DAT_LENGTH_ERROR = 0x00080000,                /* a length does not fit */
	/* the provider does not have the requested model */
	DAT_MODEL_NOT_SUPPORTED = 0x00090000,
	/* no provider is registered under the name and version */
	DAT_PROVIDER_NOT_FOUND = 0x000A0000,
	/* memory privileges do not allow the access */
	DAT_PRIVILEGES_VIOLATION = 0x000B0000,
	DAT_PROTECTION_VIOLATION = 0x000C0000,        /* protection zones do not match */
	DAT_QUEUE_EMPTY = 0x000D0000,                 /* there is no event */
	DAT_QUEUE_FULL = 0x000E0000,                  /* there is no room for another event */
	DAT_TIMEOUT_EXPIRED = 0x000F0000,             /* the timeout expired */
	/* the name and version are registered already */
	DAT_PROVIDER_ALREADY_REGISTERED = 0x00100000,
	DAT_PROVIDER_IN_USE = 0x00110000,             /* the provider has open IAs */
	/* the address is unusable; the subtype gives the reason */
	DAT_INVALID_ADDRESS = 0x00120000,
	DAT_INTERRUPTED_CALL = 0x00130000,            /* a signal ended the wait */
	DAT_CONN_QUAL_UNAVAILABLE = 0x00140000,       /* no connection qualifier is free */
	/* the reserved LMR does not permit the use (kernel only) */
	DAT_RESERVED_LMR = 0x00150000,
	DAT_PORT_IN_USE = 0x00160000,                 /* the port is taken */
	DAT_COMM_NOT_SUPPORTED = 0x00170000,          /* the communicator is not supported */
	DAT_EXTENSION_BASE = 0x10000000,              /* first type left to extensions */
	DAT_NOT_IMPLEMENTED = 0x3FFF0000              /* the provider does not implement the call */
} DAT_RETURN_TYPE;

/* Older name. */
#define DAT_NAME_NOT_FOUND DAT_PROVIDER_NOT_FOUND

/* The argument, handle, state or resource of a failure. */
typedef enum dat_return_subtype {
	DAT_NO_SUBTYPE = 0,                          /* no details */
	DAT_SUB_INTERRUPTED = 1,                     /* interrupted */
	DAT_RESOURCE_MEMORY = 2,                     /* memory ran out */
	DAT_RESOURCE_DEVICE = 3,                     /* device resources ran out */
	DAT_RESOURCE_TEP = 4,                        /* transport endpoints ran out */
	DAT_RESOURCE_TEVD = 5,                       /* transport event queues ran out */
	DAT_RESOURCE_PROTECTION_DOMAIN = 6,          /* protection domains ran out */
	DAT_RESOURCE_MEMORY_REGION = 7,              /* memory regions ran out */
	DAT_RESOURCE_ERROR_HANDLER = 8,              /* error handlers ran out */
	DAT_RESOURCE_CREDITS = 9,                    /* credits ran out */
	DAT_RESOURCE_SRQ = 10,                       /* shared receive queues ran out */
	DAT_INVALID_HANDLE_IA = 11,                  /* the IA handle */
	DAT_INVALID_HANDLE_EP = 12,                  /* the EP handle */
	DAT_INVALID_HANDLE_LMR = 13,                 /* the LMR handle */
	DAT_INVALID_HANDLE_RMR = 14,                 /* the RMR handle */
	DAT_INVALID_HANDLE_PZ = 15,                  /* the PZ handle */
	DAT_INVALID_HANDLE_PSP = 16,                 /* the PSP handle */
	DAT_INVALID_HANDLE_RSP = 17,                 /* the RSP handle */
	DAT_INVALID_HANDLE_CR = 18,                  /* the CR handle */
	DAT_INVALID_HANDLE_CNO = 19,                 /* the CNO handle */
	DAT_INVALID_HANDLE_EVD_CR = 20,              /* the EVD handle for connection requests */
	DAT_INVALID_HANDLE_EVD_REQUEST = 21,         /* the EVD handle for request completions */
	DAT_INVALID_HANDLE_EVD_RECV = 22,            /* the EVD handle for receive completions */
	DAT_INVALID_HANDLE_EVD_CONN = 23,            /* the EVD handle for connection events */
	DAT_INVALID_HANDLE_EVD_ASYNC = 24,           /* the EVD handle for asynchronous events */
	DAT_INVALID_HANDLE_SRQ = 25,                 /* the SRQ handle */
	DAT_INVALID_HANDLE_CSP = 26,                 /* the CSP handle */
	DAT_INVALID_HANDLE1 = 27,                    /* handle in argument 1 */
	DAT_INVALID_HANDLE2 = 28,                    /* handle in argument 2 */
	DAT_INVALID_HANDLE3 = 29,                    /* handle in argument 3 */
	DAT_INVALID_HANDLE4 = 30,                    /* handle in argument 4 */
	DAT_INVALID_HANDLE5 = 31,                    /* handle in argument 5 */
	DAT_INVALID_HANDLE6 = 32,                    /* handle in argument 6 */
	DAT_INVALID_HANDLE7 = 33,                    /* handle in argument 7 */
	DAT_INVALID_HANDLE8 = 34,                    /* handle in argument 8 */
	DAT_INVALID_HANDLE9 = 35,                    /* handle in argument 9 */
	DAT_INVALID_HANDLE10 = 36,                   /* handle in argument 10 */
	DAT_INVALID_ARG1 = 37,                       /* argument 1 */
	DAT_INVALID_ARG2 = 38,                       /* argument 2 */
	DAT_INVALID_ARG3 = 39,                       /* argument 3 */
	DAT_INVALID_ARG4 = 40,                       /* argument 4 */
	DAT_INVALID_ARG5 = 41,                       /* argument 5 */
	DAT_INVALID_ARG6 = 42,                       /* argument 6 */
	DAT_INVALID_ARG7 = 43,                       /* argument 7 */
	DAT_INVALID_ARG8 = 44,                       /* argument 8 */
	DAT_INVALID_ARG9 = 45,                       /* argument 9 */
	DAT_INVALID_ARG10 = 46,                      /* argument 10 */
	DAT_INVALID_STATE_EP_UNCONNECTED = 47,       /* the EP is unconnected */
	DAT_INVALID_STATE_EP_ACTCONNPENDING = 48,    /* the EP is connecting */
	DAT_INVALID_STATE_EP_PASSCONNPENDING = 49,   /* the EP has a pending connection request */
	/* the EP was created for a pending connection request */
	DAT_INVALID_STATE_EP_TENTCONNPENDING = 50,
	DAT_INVALID_STATE_EP_CONNECTED = 51,         /* the EP is connected */
	DAT_INVALID_STATE_EP_DISCONNECTED = 52,      /* the EP is disconnected */
	DAT_INVALID_STATE_EP_RESERVED = 53,          /* the EP is reserved by a service point */
	/* the EP waits for the connection to complete */
	DAT_INVALID_STATE_EP_COMPLPENDING = 54,
	DAT_INVALID_STATE_EP_DISCPENDING = 55,       /* the EP is disconnecting */
	DAT_INVALID_STATE_EP_PROVIDERCONTROL = 56,   /* the provider controls the EP */
	DAT_INVALID_STATE_EP_NOTREADY = 57,          /* the EP lacks a PZ or an EVD */
	DAT_INVALID_STATE_EP_RECV_WATERMARK = 58,    /* a receive watermark of the EP is set */
	DAT_INVALID_STATE_EP_PZ = 59,                /* the protection zone of the EP */
	DAT_INVALID_STATE_EP_EVD_REQUEST = 60,       /* the request EVD of the EP */
	DAT_INVALID_STATE_EP_EVD_RECV = 61,          /* the receive EVD of the EP */
	DAT_INVALID_STATE_EP_EVD_CONNECT = 62,       /* the connection EVD of the EP */
	DAT_INVALID_STATE_EP_UNCONFIGURED = 63,      /* the EP is unconfigured */
	DAT_INVALID_STATE_EP_UNCONFRESERVED = 64,    /* the EP is unconfigured and reserved */
	/* the EP is unconfigured with a pending request */
	DAT_INVALID_STATE_EP_UNCONFPASSIVE = 65,
	DAT_INVALID_STATE_EP_UNCONFTENTATIVE = 66,   /* the EP is unconfigured and tentative */
	DAT_INVALID_STATE_CNO_IN_USE = 67,           /* EVDs refer to the CNO */
	DAT_INVALID_STATE_CNO_DEAD = 68,             /* the CNO was freed */
	DAT_INVALID_STATE_EVD_OPEN = 69,             /* the EVD is open */
	DAT_INVALID_STATE_EVD_ENABLED = 70,          /* the EVD is enabled */
	DAT_INVALID_STATE_EVD_DISABLED = 71,         /* the EVD is disabled */
	DAT_INVALID_STATE_EVD_WAITABLE = 72,         /* the EVD is waitable */
	DAT_INVALID_STATE_EVD_UNWAITABLE = 73,       /* the EVD is unwaitable */
	DAT_INVALID_STATE_EVD_IN_USE = 74,           /* other objects refer to the EVD */
	DAT_INVALID_STATE_EVD_CONFIG_NOTIFY = 75,    /* the EVD is configured for notification */
	DAT_INVALID_STATE_EVD_CONFIG_SOLICITED = 76, /* the EVD is configured for solicited waits */
	DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD = 77, /* the EVD is configured for thresholds */
	DAT_INVALID_STATE_EVD_WAITER = 78,           /* the EVD has a waiter */
	DAT_INVALID_STATE_EVD_ASYNC = 79,            /* the EVD is the asynchronous EVD */
	DAT_INVALID_STATE_IA_IN_USE = 80,            /* objects of the IA exist */
	DAT_INVALID_STATE_LMR_IN_USE = 81,           /* windows refer to the LMR */
	DAT_INVALID_STATE_LMR_FREE = 82,             /* the LMR is free */
	DAT_INVALID_STATE_PZ_IN_USE = 83,            /* objects refer to the PZ */
	DAT_INVALID_STATE_PZ_FREE = 84,              /* the PZ is free */
	DAT_INVALID_STATE_SRQ_OPERATIONAL = 85,      /* the SRQ is operational */
	DAT_INVALID_STATE_SRQ_ERROR = 86,            /* the SRQ is in error */
	DAT_INVALID_STATE_SRQ_IN_USE = 87,           /* endpoints use the SRQ */
	DAT_INVALID_STATE_SRQ_SHUTDOWN = 88,         /* the SRQ is shut down */
	DAT_PRIVILEGES_READ = 89,                    /* local read */
	DAT_PRIVILEGES_WRITE = 90,                   /* local write */
	DAT_PRIVILEGES_RDMA_READ = 91,               /* RDMA read */
	DAT_PRIVILEGES_RDMA_WRITE = 92,              /* RDMA write */
	DAT_PROTECTION_READ = 93,                    /* local read */
	DAT_PROTECTION_WRITE = 94,                   /* local write */
	DAT_PROTECTION_RDMA_READ = 95,               /* RDMA read */
	DAT_PROTECTION_RDMA_WRITE = 96,              /* RDMA write */
	DAT_INVALID_ADDRESS_UNSUPPORTED = 97,        /* the address family is unsupported */
	DAT_INVALID_ADDRESS_UNREACHABLE = 98,        /* the address is unreachable */
	DAT_INVALID_ADDRESS_MALFORMED = 99,          /* the address is malformed */
	DAT_NAME_NOT_REGISTERED = 100,               /* the name is not registered */
	DAT_MAJOR_NOT_FOUND = 101,                   /* the major version is not registered */
	DAT_MINOR_NOT_FOUND = 102,                   /* the minor version is not registered */
	DAT_THREAD_SAFETY_NOT_FOUND = 103            /* the thread safety is not registered */
} DAT_RETURN_SUBTYPE;

#endif /* _DAT_ERROR_H_ */
