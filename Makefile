# SPDX-License-Identifier: Apache-2.0
# The only build file.  Sources, formats, subcommands, tests and manual pages
# are found by their names; nothing is registered by hand.
#
#   make            the command at build/unshard
#   make help       every target in a line

VERSION := 0.1.0
# Changes whenever a program that was built before could mind (make check-abi).
SONAME := libunshard.so.0.1
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# mount(8) looks for its helpers nowhere else.
SBINDIR ?= /sbin
CC ?= gcc
CFLAGS ?= -O2 -g
JOBS ?= $(shell nproc)

# One build folder for each way of building.
SAN_FLAGS_1 := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=all
SAN_FLAGS_thread := -O1 -fno-omit-frame-pointer -fsanitize=thread
SAN_FLAGS_fuzz := -O1 -fno-omit-frame-pointer \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
B := build$(patsubst %,-%,$(patsubst 1,san,$(filter 1 thread fuzz,$(SAN))))
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(SAN),fuzz)
CC := clang
endif

PKGS := fuse3 liburing libxxhash jansson libzstd libdeflate libseccomp
# What core may be linked with: all but libfuse.
CORE_PKGS := $(filter-out fuse3,$(PKGS))
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Werror=implicit-function-declaration
ifeq ($(WERROR),1)
WARN += -Werror
endif
# Asked when first used: "make deps" may have to install pkg-config before.
once = $(eval $(1) := $$(shell $(2)))$($(1))
PKG_CFLAGS = $(call once,PKG_CFLAGS,pkg-config --cflags $(PKGS))
PKG_LIBS = $(call once,PKG_LIBS,pkg-config --libs $(PKGS))
CORE_LIBS = $(call once,CORE_LIBS,pkg-config --libs $(CORE_PKGS)) \
	-pthread $(SAN_FLAGS_$(SAN))
LIBS = $(PKG_LIBS) -pthread $(SAN_FLAGS_$(SAN))
# What reads untrusted files is hardened; a sanitizer does without.
HARDEN := $(if $(SAN),,-fstack-protector-strong -fstack-clash-protection \
	$(if $(findstring _FORTIFY_SOURCE,$(CFLAGS)),,-U_FORTIFY_SOURCE \
	-D_FORTIFY_SOURCE=2))
PIE := $(if $(SAN),,-pie -Wl,-z,relro,-z,now)
LIBS += $(PIE)
# One build of core for programs and for libunshard.so: what this exports is
# marked in core/lib/unshard.h.
PIC := -fPIC -fvisibility=hidden
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DUNSHARD_VERSION='"$(VERSION)"' -I. $(PIC) \
	$(WARN) -pthread $(HARDEN) $(CFLAGS) $(SAN_FLAGS_$(SAN)) $(PKG_CFLAGS)

FORMATS := $(sort $(patsubst core/format/%/fmt.c,%,$(wildcard core/format/*/fmt.c)))
VIEWS := $(sort $(patsubst view_%.c,%,$(notdir \
	$(wildcard core/view/view_*.c core/view/*/view_*.c))))
CMDS := $(sort $(patsubst cmd_%.c,%,$(notdir \
	$(wildcard mount-helpers/cmd_*.c mount-helpers/*/cmd_*.c))))
NAMES := core/mesh/names.rules
RULES_FILES := $(filter-out $(NAMES),$(wildcard core/*/*.rules core/*/*/*.rules))
# Those that say how names of others are translated; the rest: how ranks share.
TRANSLATIONS := $(wildcard core/view/translate/*.rules)
# The library's program for parsing, which has a main() of its own.
PARSER_SRC := core/lib/parser_main.c
CORE_SRC := $(filter-out $(PARSER_SRC),$(wildcard core/*/*.c core/*/*/*.c))
CMD_SRC := $(wildcard fs/*.c fs/*/*.c mount-helpers/*.c mount-helpers/*/*.c)
UNIT_SRC := $(wildcard tests/unit/*/*.c tests/unit/*/*/*.c tests/formats/*.c)
TESTLIB_SRC := $(wildcard tests/lib/*.c)
FUZZ := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
RACE := $(patsubst tests/race/%.c,%,$(wildcard tests/race/*.c))
LIBTESTS := $(patsubst tests/libunshard/%.c,%,$(wildcard tests/libunshard/*.c))
BENCHES := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/*.c))
HELPERS := $(patsubst tests/mount/%.c,%,$(wildcard tests/mount/*.c))
MAN := $(patsubst docs/man/%.scd,%,$(wildcard docs/man/*.scd))
UNITS := $(patsubst packaging/%,$(B)/%,$(wildcard packaging/systemd/*/*.service))
obj = $(patsubst %.c,$(B)/%.o,$(1))
CORE := $(B)/libunshard-core.a
CMD_GEN := $(B)/gen/cmds.o $(B)/gen/page.o
TESTLIB := $(if $(TESTLIB_SRC),$(B)/libtest.a)

PROGRAMS := $(B)/unshard $(B)/unshard-parser $(B)/libunshard.so \
	$(B)/libunshard.a $(B)/unshard.pc $(B)/60-unshardfs.rules $(UNITS)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
# Goals are made one after the other, each in parallel inside: two makes that
# build one file at a time would spoil it.  Files alone are one make's.
ifneq ($(filter-out $(B)/% nothing,$(or $(MAKECMDGOALS),all)),)
.NOTPARALLEL:
endif
.PHONY: all deps
all: need-build ## the command, the library and its parser, at build/
	@$(MAKE) --no-print-directory $(JOBS_FLAG) $(PROGRAMS)

deps: ## install what building and testing need (apt; else say what is missing)
	@packaging/deps.sh build man run demo check

# need-GROUP: what that group of packaging/deps.list names is there.
need-%:
	@packaging/deps.sh $(subst +, ,$*)

# ---- programs ----------------------------------------------------------

$(B)/unshard: $(call obj,$(CMD_SRC)) $(CMD_GEN) $(CORE)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/unshard-parser: $(call obj,$(PARSER_SRC)) $(CORE)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS) $(PIE)
# The whole of core: what nobody calls yet may be what an option asks for.
$(B)/$(SONAME): $(CORE) core/lib/libunshard.map
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(SONAME) \
		-Wl,--version-script=core/lib/libunshard.map \
		-Wl,-z,defs,-z,nodelete,-z,relro,-z,now \
		-Wl,--whole-archive $(CORE) -Wl,--no-whole-archive $(CORE_LIBS)
$(B)/libunshard.so: $(B)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@
# One object, of which only what is marked can be seen.
$(B)/libunshard.a: $(CORE)
	$(Q)$(LD) -r -o $(B)/libunshard.o --whole-archive $(CORE) && \
		objcopy --localize-hidden $(B)/libunshard.o && \
		rm -f $@ && $(AR) rcs $@ $(B)/libunshard.o
$(B)/unshard.pc: packaging/unshard.pc.in FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' -e 's|@CORE_PKGS@|$(CORE_PKGS)|' $< >$@.new; \
		$(update)

$(B)/systemd/%: packaging/systemd/% FORCE
	@mkdir -p $(@D)
	@sed 's|@BIN@|$(PREFIX)/bin|' $< >$@.new; $(update)
$(B)/60-unshardfs.rules: packaging/udev/60-unshardfs.rules FORCE
	@mkdir -p $(@D)
	@sed 's|@LIBEXEC@|$(PREFIX)/libexec/unshardfs|' $< >$@.new; $(update)

$(CORE): $(call obj,$(CORE_SRC)) $(B)/gen/formats.o $(B)/gen/names.o $(B)/gen/rules.o \
		$(if $(VIEWS),$(B)/gen/views.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/libtest.a: $(call obj,$(TESTLIB_SRC))
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# All of fs/ and mount-helpers/ but the one main(), for unit tests of them.
$(B)/libcmd.a: $(filter-out %/main.o %/unshard.o,$(call obj,$(CMD_SRC))) \
		$(CMD_GEN)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
# Allocations go through tests/lib/failalloc.c, which can make one fail.
WRAPPED := malloc calloc realloc reallocarray strdup strndup
# Loads and saves through tests/lib/ondevice.c, which can make them a device's.
ON_DEVICE := ck_load_start ck_load_next ck_load_wait ck_load_free ck_load_read \
	ck_save_write
$(B)/unit: $(call obj,$(UNIT_SRC)) $(TESTLIB) $(B)/libcmd.a $(CORE)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(WRAPPED:%=-Wl,--wrap=%) -o $@ $^ \
		$(LIBS) -lcriterion

# A fuzz target, by libFuzzer or by a main() that replays a corpus.
ifeq ($(SAN),fuzz)
FUZZ_MAIN := -fsanitize=fuzzer
else
FUZZ_MAIN := $(B)/tests/fuzz/standalone.o
endif
$(B)/fuzz/%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/standalone.o \
		$(TESTLIB) $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(FUZZ_MAIN) \
		$(TESTLIB) $(CORE) $(CORE_LIBS)

$(B)/race/%: $(B)/tests/race/%.o $(TESTLIB) $(B)/libcmd.a $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(B)/mutations/%: $(B)/tests/mutations/%.o $(TESTLIB) $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)
$(B)/libtest/%: $(B)/tests/libunshard/%.o $(B)/tests/lib/ondevice.o $(TESTLIB) \
		$(B)/libcmd.a $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(WRAPPED:%=-Wl,--wrap=%) \
		$(ON_DEVICE:%=-Wl,--wrap=%) -o $@ $^ $(LIBS)
# Stand-ins for libraries of vendors, which programs under test load by name.
$(B)/fakes/libcuda.so.1: $(B)/tests/fakes/cuda.o $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(@F) $^ \
		$(CORE_LIBS)
$(B)/fakes/libcufile.so.0: $(B)/tests/fakes/cufile.o $(B)/fakes/libcuda.so.1
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(@F) $^
$(B)/fakes/libnccl.so.2: $(B)/tests/fakes/nccl.o $(B)/fakes/libcuda.so.1
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(@F) $^
$(B)/fakes/old/libnccl.so.2: tests/fakes/nccl.c $(B)/fakes/libcuda.so.1
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DOLD $(LDFLAGS) -shared -o $@ \
		-Wl,-soname,$(@F) $^
$(B)/bench/%: $(B)/tests/bench/%.o $(TESTLIB) $(B)/libcmd.a $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(B)/crash/%.so: $(B)/tests/crash/%.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ $^ -ldl
$(B)/helper/%: $(B)/tests/mount/%.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/%.o: %.c $(B)/gen/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(B)/gen/%.o: $(B)/gen/%.c $(B)/gen/flags
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# ---- generated; rewritten only when it changes --------------------------

update = cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(B)/gen/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(CC) $(ALL_CFLAGS))' >$@.new; $(update)
# $(call table,HEADER,TYPE,SYMBOL,NAMES): SYMBOLs[] of all the SYMBOL_NAMEs.
define table
	@mkdir -p $(@D)
	@{ printf '#include "$(1)"\n#include <stddef.h>\n'; \
	   for n in $(4); do \
		printf 'extern const struct $(2) $(3)_%s;\n' $$n; done; \
	   printf 'const struct $(2) *const $(3)s[] = {\n'; \
	   for n in $(4); do printf '\t&$(3)_%s,\n' $$n; done; \
	   printf '\tNULL,\n};\n'; } >$@.new; $(update)
endef
$(B)/gen/formats.c: FORCE
	$(call table,core/format/format.h,ck_format,ck_format,$(FORMATS))
$(B)/gen/views.c: FORCE
	$(call table,core/view/view.h,ck_view_ops,ck_view,$(VIEWS))
$(B)/gen/cmds.c: FORCE
	$(call table,mount-helpers/cmd.h,cmd,cmd,$(CMDS))

# inspect --html: the page, which names its script by its digest, and that.
PAGE := mount-helpers/inspect/page
$(B)/gen/page.c: $(PAGE).html $(PAGE).js FORCE
	@mkdir -p $(@D)
	@digest=$$(sha256sum <$(PAGE).js | cut -c 1-64 | tr a-f A-F | \
		basenc -d --base16 | base64); \
	 { printf 'extern const char page_html[], page_js[];\n'; \
	   printf 'const char page_html[] =\n'; sed "s|@SHA256@|$$digest|; \
		s/[\\\\\"]/\\\\&/g; s/.*/\"&\\\\n\"/" $(PAGE).html; \
	   printf ';\nconst char page_js[] =\n'; \
	   sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $(PAGE).js; printf ';\n'; \
	 } >$@.new; $(update)

# Files of rules, which are installed as files too: the name and the text of each
# of $(2), by name, in an array $(1).
rules_table = printf 'const struct ck_rules_builtin $(1)[] = {\n'; \
	$(foreach n,$(sort $(basename $(notdir $(2)))),printf '{ "$(n)",\n'; \
	sed 's/[\\"]/\\&/g; s/.*/\t"&\\n"/' $(filter %/$(n).rules,$(2)); \
	printf '},\n';) printf '{ 0, 0 },\n};\n'
$(B)/gen/rules.c: $(RULES_FILES) FORCE
	@mkdir -p $(@D)
	@{ printf '#include "core/mesh/tp_rules.h"\n'; \
	   printf '#include "core/view/translate/translate.h"\n'; \
	   $(call rules_table,ck_tp_builtins,\
		$(filter-out $(TRANSLATIONS),$(RULES_FILES))); \
	   $(call rules_table,ck_translations,$(TRANSLATIONS)); \
	 } >$@.new; $(update)

# An array of words for each class: CLASS WORD ...
$(B)/gen/names.c: $(NAMES) FORCE
	@mkdir -p $(@D)
	@awk 'BEGIN { print "#include \"core/mesh/names.h\"" } \
	   /^[a-z]/ { if (!($$1 in words)) class[nr++] = $$1; \
		for (i = 2; i <= NF; i++) \
			words[$$1] = words[$$1] "\"" $$i "\", " } \
	   END { for (i = 0; i < nr; i++) \
		printf "const char *const ck_names_%s[] = { %s0 };\n", \
			class[i], words[class[i]] }' $< >$@.new; $(update)

# ---- tests: see docs/hacking.md -----------------------------------------

PROGRAMS_unit := $(B)/unit $(B)/unshard-parser
PROGRAMS_cmd := $(B)/unshard
PROGRAMS_mount := $(B)/unshard $(patsubst %,$(B)/helper/%,$(HELPERS)) \
	$(B)/crash/at_call.so $(B)/crash/meanwhile.so
PROGRAMS_crash := $(PROGRAMS_mount)
PROGRAMS_fuzz := $(patsubst %,$(B)/fuzz/%,$(FUZZ))
FAKES := $(addprefix $(B)/fakes/,libcuda.so.1 libcufile.so.0 \
		libnccl.so.2 old/libnccl.so.2)
PROGRAMS_lib := $(patsubst %,$(B)/libtest/%,$(LIBTESTS)) $(FAKES) \
	$(B)/libunshard.so $(B)/unshard-parser
PROGRAMS_mutations := $(B)/mutations/answer
PROGRAMS_race := $(patsubst %,$(B)/race/%,$(RACE))
PROGRAMS_clients := $(B)/unshard
PROGRAMS_deliver := $(B)/unshard
PROGRAMS_clients-mindspore := $(B)/unshard
PROGRAMS_clients-torch_xla := $(B)/unshard
PROGRAMS_clients-oneflow := $(B)/unshard
PROGRAMS_python := $(B)/unshard $(B)/unshard-parser $(B)/libunshard.so $(FAKES) \
	$(if $(SAN),,$(B)/wheel/made)
PROGRAMS_python-vllm := $(PROGRAMS_python)
PROGRAMS_posix := $(B)/unshard
PROGRAMS_browser := $(B)/unshard
PROGRAMS_bench := $(B)/unshard $(B)/unshard-parser $(B)/libunshard.so \
	$(patsubst %,$(B)/bench/%,$(BENCHES))
PROGRAMS_lint := $(B)/unshard $(B)/options $(CORE) \
	$(PROGRAMS_race) $(PROGRAMS_bench) $(patsubst %,$(B)/man/%,$(MAN))
PROGRAMS_abi := $(PROGRAMS)
PROGRAMS_cuda-abi :=
PROGRAMS_valgrind := $(B)/unit $(B)/unshard-parser
STAGES := unit lib abi cmd fuzz mutations mount lint
export B SAN CC VERSION PKGS CORE_PKGS PREFIX LIBDIR SBINDIR DESTDIR SONAME
export PJDFSTEST FSX PASSTHROUGH OPS

JOBS_FLAG = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))
# $(call stages,LIST): build their programs, run them, count; with -n only says so.
DRY = $(findstring n,$(firstword -$(MAKEFLAGS)))
stages = +@$(MAKE) --no-print-directory $(if $(V),,-s) \
	$(JOBS_FLAG) nothing $(sort $(foreach s,$(1),$(PROGRAMS_$(s)))) && \
	$(if $(DRY),echo) tests/run $(1)

export MUTATIONS SEED CRASH
.PHONY: check check-cuda-abi check-unit check-mutations check-crash check-lib check-abi check-cmd check-mount check-clients check-valgrind
.PHONY: check-race check-clients-mindspore check-clients-torch_xla
.PHONY: check-clients-oneflow check-posix check-python check-python-vllm check-deliver check-browser
export OUT DEVICE MIB WHEELS PYTHON
.PHONY: check-fuzz unit fuzz bench bench-gpu lint format demo nothing run-race run-libfuzzer
check: need-build+man+run+check ## every test but the long ones; SAN=1: ASan, UBSan
	$(call stages,$(STAGES))
check-unit: need-build+check ## unit and format tests
	$(call stages,unit)
check-lib: need-build+run ## loads, and programs that use the library; SAN=thread too
	$(call stages,lib)
check-abi: need-build ## what libunshard exports is what is recorded; an old program runs
	$(call stages,abi)
check-cuda-abi: ## our declarations against cuda.h and cufile.h of CUDA 12 and 13; fetches 9 MB
	$(call stages,cuda-abi)
check-cmd: need-build+check ## the commands that need no mount
	$(call stages,cmd)
check-fuzz: need-build ## the fuzz corpora, replayed
	$(call stages,fuzz)
check-mutations: need-build ## damaged checkpoints: refused, said, or served right; MUTATIONS=N SEED=S
	$(call stages,mutations)
check-mount: need-build+run+check ## real mounts; MOUNT=skip without /dev/fuse
	$(call stages,mount)
check-clients: need-build+run ## NumPy, safetensors, torch, transformers and more on real mounts
	$(call stages,clients)
check-clients-mindspore: need-build+run ## MindSpore on real mounts; fetches 0.8 GB
	$(call stages,clients-mindspore)
check-clients-torch_xla: need-build+run ## torch_xla on real mounts; fetches 1 GB
	$(call stages,clients-torch_xla)
check-clients-oneflow: need-build+run ## OneFlow on real mounts, by Python 3.10; fetches 1.7 GB
	$(call stages,clients-oneflow)
check-python: need-build+wheel ## the Python package, with NumPy, torch, safetensors, transformers
	$(call stages,python)
check-python-vllm: need-build+wheel ## vLLM on the CPU by --load-format unshard; fetches 1 GB
	$(call stages,python-vllm)
check-posix: need-build+run+check ## pjdfstest and xfstests' fsx: PJDFSTEST=DIR FSX=PROGRAM
	$(call stages,posix)
check-deliver: need-build+run ## clone, packages and wheel in bare Debian roots; as root, with debootstrap
	$(call stages,deliver)
check-browser: need-build+check ## inspect --html in chromium, if it is installed
	$(call stages,browser)
check-valgrind: need-build+check+valgrind ## unit tests under valgrind
	$(call stages,valgrind)
check-crash: need-build+run+check ## faults at each step of each way of writing; CRASH=RUNS or CRASH=all
	$(call stages,crash)
check-race: need-build ## tests/race under ThreadSanitizer
	+@$(MAKE) --no-print-directory SAN=thread run-race
run-race:
	$(call stages,race)
nothing: ; @:

lint: need-build+man+check ## layers, sizes, manual, format and more
	$(call stages,lint)
unit: check-unit

FUZZ_SECONDS ?= 20
fuzz: need-build+fuzz ## libFuzzer, FUZZ_SECONDS=20 for each parser
	+@$(MAKE) --no-print-directory SAN=fuzz run-libfuzzer
run-libfuzzer: $(PROGRAMS_fuzz)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/run libfuzzer

bench: need-build+run+check ## figures, to build/bench/results.json
	$(call stages,bench)

bench-gpu: need-build ## a device, CUDA's or the simulated: OUT=DIR [DEVICE=cuda]; at most 9 minutes
	@$(MAKE) --no-print-directory $(JOBS_FLAG) $(B)/bench/gpu
	@tests/bench-gpu

format: ## rewrite the sources as .clang-format says
	clang-format-14 -i $$(git ls-files '*.c' '*.h')

demo: need-build+run+demo ## mount a small real checkpoint and read it
	@$(MAKE) --no-print-directory $(JOBS_FLAG) $(B)/unshard
	@tests/demo/demo.sh

# ---- one file that runs anywhere; the wheel: what pip installs ------------

STATIC_LIBS := -l:liburing.a -l:libxxhash.a -l:libzstd.a -l:libdeflate.a -l:libseccomp.a
# libfuse3.a says dlopen, for modules of its high-level interface, which is not used.
$(B)/static/unshard: $(call obj,$(CMD_SRC)) $(CMD_GEN) $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -s -static-pie -Wl,-z,relro,-z,now \
		-Wl,-Map=$@.map -o $@ $^ \
		$(STATIC_LIBS) -l:libjansson.a -l:libfuse3.a -pthread

.PHONY: static static-arm64
static: need-build ## the command as one file that needs no other, at build/static/
	@$(MAKE) --no-print-directory $(JOBS_FLAG) $(B)/static/unshard
static-arm64: need-arm64 ## the same for arm64, by Debian's cross compiler and :arm64 packages
	@PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig \
		$(MAKE) --no-print-directory static B=build-arm64 \
		CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar

# The library needs the C library only, whose stdin libjansson.a, which is not for
# shared objects, asks for in one place.
$(B)/wheel/jansson.a:
	@rm -rf $(B)/wheel/jansson && mkdir -p $(B)/wheel/jansson
	$(Q)cd $(B)/wheel/jansson && \
		$(AR) x "$$($(CC) -print-file-name=libjansson.a)" && \
		objcopy --redefine-sym stdin=unshard_no_stdin load.o && \
		echo 'void *unshard_no_stdin;' | $(CC) -fPIC -x c -c -o no_stdin.o - && \
		$(AR) rcs ../jansson.a *.o
$(B)/wheel/libunshard.so: $(CORE) $(B)/wheel/jansson.a core/lib/libunshard.map
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -s -shared -o $@ -Wl,-soname,$(SONAME) \
		-Wl,--version-script=core/lib/libunshard.map \
		-Wl,-z,defs,-z,text,-z,nodelete,-z,relro,-z,now \
		-Wl,--whole-archive $(CORE) -Wl,--no-whole-archive \
		$(B)/wheel/jansson.a $(STATIC_LIBS) -pthread
$(B)/wheel/unshard-parser: $(call obj,$(PARSER_SRC)) $(CORE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -s -static-pie -o $@ $^ $(STATIC_LIBS) \
		-l:libjansson.a -pthread
$(B)/wheel/unshard: $(B)/static/unshard
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(B)/wheel/made: $(addprefix $(B)/wheel/,libunshard.so unshard-parser unshard) \
		$(wildcard packaging/python/*.py packaging/python/unshard/*) docs/python.md
	$(Q)packaging/python/wheel.py $(VERSION) $(@D) $(@D) >$@.new && mv $@.new $@

wheel: need-build+wheel ## the Python package for pip, at build/wheel/
	@$(MAKE) --no-print-directory $(JOBS_FLAG) $(B)/wheel/made
	@cat $(B)/wheel/made

# ---- manual, install, release -------------------------------------------

.PHONY: man install uninstall dist deb rpm release wheel help clean FORCE
man: need-build+man $(patsubst %,$(B)/man/%,$(MAN)) ## the manual pages, at build/man/
# docs/options.c: lines "@options mount@", "@options open@" and "@formats@" of
# a page stand for tables that the sources hold.
$(B)/options: $(B)/docs/options.o $(B)/libcmd.a $(CORE)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
$(B)/man/%: docs/man/%.scd $(B)/options
	@mkdir -p $(@D)
	$(Q)$(B)/options <$< >$@.scd && scdoc <$@.scd >$@

install: need-build+man ## into $(PREFIX), DESTDIR before it
	@$(MAKE) --no-print-directory $(PROGRAMS) man
	@packaging/install.sh install
uninstall: ## what install put there
	@packaging/install.sh uninstall

dist: ## build/dist/unshardfs-VERSION.tar.gz, from what is committed
	@mkdir -p build/dist
	git archive --prefix=unshardfs-$(VERSION)/ HEAD | \
		gzip -9n >build/dist/unshardfs-$(VERSION).tar.gz

deb: need-build+man+run+check+deb ## Debian packages, below build/deb/
	rm -rf build/deb && mkdir -p build/deb/unshardfs-$(VERSION)
	git archive HEAD | tar -x -C build/deb/unshardfs-$(VERSION)
	cp -r packaging/debian build/deb/unshardfs-$(VERSION)/debian
	cd build/deb/unshardfs-$(VERSION) && env -u MAKEFLAGS -u MAKELEVEL \
		dpkg-buildpackage -b -us -uc

rpm: need-build+man+rpm ## the command as a package for rpm, below build/rpm/
	@$(MAKE) --no-print-directory PREFIX=/usr static man $(UNITS) \
		$(B)/60-unshardfs.rules
	@rm -rf $(B)/rpm && mkdir -p $(B)/rpm
	$(Q)rpmbuild -bb --quiet --define "_topdir $(CURDIR)/$(B)/rpm/top" \
		--define "_rpmdir $(CURDIR)/$(B)/rpm" --define "upstream $(VERSION)" \
		--define "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm" \
		--define "top $(CURDIR)" packaging/unshardfs.spec

release: need-build+man+run+check+deb+wheel+rpm+release ## all packages, SBOM and checksums, at build/release/
	@packaging/release.sh

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s%s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))

clean: ## remove everything that was built
	rm -rf build build-san build-thread build-fuzz build-arm64

FORCE:
Q = $(if $(V),,@echo "  $(@:$(B)/%=%)";)
-include $(shell find $(B) -path $(B)/deb -prune -o -path $(B)/release -prune -o \
	-name '*.d' -type f -print 2>/dev/null)
