# SPDX-License-Identifier: Apache-2.0
# The only build file.  Sources, formats, subcommands, tests and manual pages
# are found by their names; nothing is registered by hand.
#
#   make            the command at build/unshard
#   make help       every target in a line

B ?= build
CC ?= gcc
PKGS := fuse3 liburing libxxhash jansson libzstd libseccomp
CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Werror=implicit-function-declaration
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -I. $(WARN) -pthread $(CFLAGS) \
	$(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -pthread

ifeq ($(SAN),1)
B := $(B)-san
ALL_CFLAGS += -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=all
LIBS += -fsanitize=address,undefined
endif

FORMATS := $(sort $(patsubst core/format/fmt_%.c,%,$(wildcard core/format/fmt_*.c)))
CMDS := $(sort $(patsubst mount-helpers/cmd_%.c,%,$(wildcard mount-helpers/cmd_*.c)))
CORE_SRC := $(wildcard core/*.c core/*/*.c)
CMD_SRC := $(wildcard fs/*.c mount-helpers/*.c)
UNIT_SRC := $(wildcard tests/unit/*.c tests/unit/*/*.c)
LIB_SRC := $(wildcard tests/lib/*.c)
obj = $(patsubst %.c,$(B)/%.o,$(1))

.PHONY: all
all: $(B)/unshard

$(B)/unshard: $(call obj,$(CMD_SRC)) $(B)/gen/cmds.o $(B)/libunshard-core.a
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS)

$(B)/libunshard-core.a: $(call obj,$(CORE_SRC)) $(B)/gen/formats.o
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/unit: $(call obj,$(UNIT_SRC) $(LIB_SRC)) $(B)/libunshard-core.a
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS) -lcriterion

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(B)/gen/%.o: $(B)/gen/%.c
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Tables made from file names; rewritten only when they change.
$(B)/gen/formats.c: FORCE
	@mkdir -p $(@D)
	@{ printf '#include "core/format/format.h"\n'; \
	   printf 'extern const struct ck_format ck_format_%s;\n' $(FORMATS); \
	   printf 'const struct ck_format *const ck_formats[] = {\n'; \
	   printf '\t&ck_format_%s,\n' $(FORMATS); printf '\tNULL,\n};\n'; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(B)/gen/cmds.c: FORCE
	@mkdir -p $(@D)
	@{ printf '#include "mount-helpers/cmd.h"\n#include <stddef.h>\n'; \
	   printf 'extern const struct cmd cmd_%s;\n' $(CMDS); \
	   printf 'const struct cmd *const cmds[] = {\n'; \
	   printf '\t&cmd_%s,\n' $(CMDS); printf '\tNULL,\n};\n'; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

.PHONY: FORCE unit clean
FORCE:
unit: $(B)/unit
	$(B)/unit
clean:
	rm -rf build build-san

Q = $(if $(V),,@echo "  $(@:$(B)/%=%)";)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
