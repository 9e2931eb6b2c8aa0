/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allow.c - which classes a .metadata may name
 *
 * Nothing named is ever called, so the list is no sandbox.  It exists so that
 * a file that would run something in Python is refused here, in the open,
 * rather than read for its harmless part:
 *
 *   torch, megatron, nvidia_resiliency_ext, torch_xla    anything in them
 *   any module    the names of DCP's own classes, and path classes
 *   builtins, collections, ...                           the few in the table
 */
#include "core/format/dcp/dcp.h"

#include <string.h>

struct known {
	const char *module, *names; /* names: each between blanks */
};

static const struct known known[] = {
	{ "builtins", " getattr set frozenset list dict tuple bytearray slice "
		      "complex int str bytes float bool range object " },
	{ "__builtin__", " getattr set frozenset list dict tuple bytearray "
			 "slice complex int str bytes float bool xrange "
			 "object " },
	{ "collections", " OrderedDict defaultdict Counter deque " },
	{ "datetime", " datetime date time timedelta timezone " },
	{ "uuid", " UUID " },
	{ "enum", " Enum IntEnum " },
	{ "_codecs", " encode " },
	{ "copyreg", " _reconstructor " },
	{ "copy_reg", " _reconstructor " },
	{ "types", " SimpleNamespace " },
	{ "argparse", " Namespace " },
	{ "numpy", " dtype ndarray " },
	{ "numpy.core.multiarray", " scalar _reconstruct " },
	{ "numpy._core.multiarray", " scalar _reconstruct " },
};

static const char families[] = " torch megatron torch_xla "
			       "nvidia_resiliency_ext ";

/* Other planners and writers subclass these under their own modules. */
static const char *const endings[] = {
	"Metadata",	    "MetadataIndex",	   "StorageInfo", "StorageMeta",
	"TensorProperties", "MEM_FORMAT_ENCODING", "SavePlan",	  "WriteItem",
	"WriteItemType",    "TensorWriteData",	   "Path",
};

static bool ends_in(const char *s, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len >= n && !memcmp(s + len - n, end, n);
}

/* Whether @word is one of @words, each of which stands between blanks. */
static bool has_word(const char *words, const char *word, size_t len)
{
	if (memchr(word, ' ', len))
		return false;
	for (const char *at = words; (at = strchr(at, ' ')) && at[1]; at++)
		if (!strncmp(at + 1, word, len) && at[1 + len] == ' ')
			return true;
	return false;
}

/* By the package that the module is in. */
static bool in_family(const char *module, size_t len)
{
	const char *dot = memchr(module, '.', len);

	return has_word(families, module, dot ? (size_t)(dot - module) : len);
}

static bool in_table(const char *module, size_t module_len, const char *name,
		     size_t name_len)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strlen(known[i].module) == module_len &&
		    !memcmp(known[i].module, module, module_len) &&
		    has_word(known[i].names, name, name_len))
			return true;
	return false;
}

bool ck_dcp_allow(void *ctx, const char *module, size_t module_len,
		  const char *name, size_t name_len)
{
	(void)ctx;
	if (!name_len || memchr(name, ' ', name_len) ||
	    memchr(name, '\0', name_len))
		return false;
	if (in_family(module, module_len) ||
	    in_table(module, module_len, name, name_len))
		return true;
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (ends_in(name, name_len, endings[i]))
			return true;
	return false;
}
