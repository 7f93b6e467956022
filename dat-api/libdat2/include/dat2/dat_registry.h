/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DAT 2.0: the side of the registry that providers use.
 */
#ifndef _DAT_REGISTRY_H_
#define _DAT_REGISTRY_H_

#include <dat2/udat_redirection.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called by a provider from its init function, once for each name that the provider serves. */
DAT_RETURN dat_registry_add_provider(const DAT_PROVIDER *provider,
		const DAT_PROVIDER_INFO *provider_info);

/* Called by a provider from its fini function. */
DAT_RETURN dat_registry_remove_provider(const DAT_PROVIDER *provider,
		const DAT_PROVIDER_INFO *provider_info);

/*
 * Translates a consumer's IA handle to the provider's IA handle, and a provider's to a consumer's.
 * Providers fill the ia_handle members of query results with the result.
 */
DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE handle, DAT_IA_HANDLE *result);

/* Functions that every provider library exports. */
#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR "dat_provider_fini"

/* Called after loading, once for each name, with the ia_params field of the name's entry. */
typedef void (*DAT_PROVIDER_INIT_FUNC)(const DAT_PROVIDER_INFO *info, const char *instance_data);
/* Called before unloading. */
typedef void (*DAT_PROVIDER_FINI_FUNC)(const DAT_PROVIDER_INFO *info);

/* The answers of dat_registry_providers_related: whether one provider can replace another. */
typedef enum dat_ha_relationship {
	DAT_HA_FALSE = 0,          /* unrelated */
	DAT_HA_TRUE = 1,           /* related */
	DAT_HA_UNKNOWN = 2,        /* unknown */
	DAT_HA_CONFLICTING = 3,    /* the two providers contradict each other */
	DAT_HA_EXTENSION_BASE = 4  /* first number left to extensions */
} DAT_HA_RELATIONSHIP;

DAT_RETURN dat_registry_providers_related(const DAT_NAME_PTR name, const DAT_NAME_PTR other,
		DAT_HA_RELATIONSHIP *answer);

#ifdef __cplusplus
}
#endif

#endif /* _DAT_REGISTRY_H_ */
